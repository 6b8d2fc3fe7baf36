"""The stages of a store, with the names that the sweeps which ran there gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fope_lab.store import StageFolder, Store
from fope_lab.sweep.stage_filter import SHOWN_DIGITS, find_stage
from fope_lab.tracking.ledger import recorded_sweeps


@dataclass(frozen=True)
class KnownStage:
    """A stage that somebody began, or that a recorded sweep has.

    `sweep` is the sweep that gave it its `section` and `label`, and `parents` are the keys that it
    says, by role. All four are empty for a stage that no recorded sweep has any more.
    """

    key: str
    kind: str
    section: str
    label: str
    sweep: str
    parents: Mapping[str, str]
    folder: StageFolder

    @property
    def title(self) -> str:
        """The label, or the kind if it has none, with the first digits of the key."""
        return f"{self.label or self.kind} ({self.key[:SHOWN_DIGITS]})"


def known_stages(store: Store) -> list[KnownStage]:
    """The stages of all recorded sweeps, once for each sweep, then those without a name."""
    named = [
        KnownStage(
            stage.key,
            stage.kind,
            stage.section,
            stage.label,
            sweep.name,
            stage.parents,
            store.folder(stage.kind, stage.key),
        )
        for sweep in recorded_sweeps(store)
        for stage in sweep.stages
    ]
    folders = {stage.folder.path for stage in named}
    nameless = [
        KnownStage(folder.path.name, folder.path.parent.name, "", "", "", {}, folder)
        for folder in store.folders()
        if folder.path not in folders
    ]
    return named + nameless


def find_known_stage(store: Store, name: str) -> KnownStage:
    """The stage of a store with this name, label or key; SweepError says which there are."""
    return find_stage(known_stages(store), name, ("STAGE",))
