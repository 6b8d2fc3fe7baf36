"""The stages of a store with the names that sweeps gave them, and which of them others need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
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
    folder: StageFolder
    section: str
    label: str
    sweep: str
    parents: Mapping[str, str]

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
            store.folder(stage.kind, stage.key),
            stage.section,
            stage.label,
            sweep.name,
            stage.parents,
        )
        for sweep in recorded_sweeps(store)
        for stage in sweep.stages
    ]
    folders = {stage.folder.path for stage in named}
    return named + [
        KnownStage(folder.path.name, folder.path.parent.name, folder, "", "", "", {})
        for folder in store.folders()
        if folder.path not in folders
    ]


def find_known_stage(store: Store, name: str) -> KnownStage:
    """The stage of a store with this name, label or key; SweepError says which there are."""
    return find_stage(known_stages(store), name, ("STAGE",))


def references(store: Store, stages: Iterable[KnownStage]) -> dict[str, set[str]]:
    """The keys that each stage refers to, by its key, as its sweeps and its own record say."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        parents = {*stage.parents.values(), *parents_of(stage.folder).values()}
        found.setdefault(stage.key, set()).update(referred(store, parents))
    return found


def parents_of(folder: StageFolder) -> dict[str, str]:
    """The keys of a stage's parents by role, as it was asked for; or the folder of a checkpoint."""
    parents = (folder.request() or {}).get("parents")
    if not isinstance(parents, dict):
        return {}
    return {str(role): of for role, of in parents.items() if isinstance(of, str)}


def referred(store: Store, parents: Iterable[str]) -> set[str]:
    """The keys of parents, each of which is a key or the folder of a checkpoint.

    A checkpoint in this store is that of a stage, and others are of no stage.
    """
    root, keys = store.root.resolve(), set[str]()
    for parent in parents:
        if "/" not in parent:
            keys.add(parent)
        elif (path := Path(parent).resolve()).is_relative_to(root):
            keys.update(path.relative_to(root).parts[1:2])
    return keys
