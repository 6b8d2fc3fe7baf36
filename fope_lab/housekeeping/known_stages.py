"""The stages of a store with the names that sweeps gave them, and which of them others need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.problems import UserError
from fope_lab.store import StageFolder, Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.stage_filter import SHOWN_DIGITS, find_stage
from fope_lab.tracking.ledger import damaged_plans, recorded_sweeps


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


References = Mapping[str, frozenset[str]]
"""The keys of the stages that each stage refers to, by its key."""


def references(store: Store, stages: Iterable[KnownStage]) -> References:
    """What the stages refer to, as their sweeps and their own records say."""
    found: dict[str, set[str]] = {}
    for stage in stages:
        parents = found.setdefault(stage.key, set())
        recorded = parents_of(stage.folder)
        parents |= referred(store, {*stage.parents.values(), *recorded.values()})
    return {key: frozenset(parents) for key, parents in found.items()}


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
    return {key for parent in parents if (key := _key(store, parent)) is not None}


def _key(store: Store, parent: str) -> str | None:
    if "/" not in parent:
        return parent
    try:
        inside = Path(parent).resolve().relative_to(store.root.resolve())
    except ValueError:
        return None
    return inside.parts[1] if len(inside.parts) > 1 else None


def with_ancestors(keys: Iterable[str], references: References) -> set[str]:
    """The keys, and all that they refer to, directly or through others."""
    found: set[str] = set()
    pending = list(keys)
    while pending:
        key = pending.pop()
        if key not in found:
            found.add(key)
            pending += references.get(key, ())
    return found


@dataclass(frozen=True)
class RecordedNeeds:
    """The keys that recorded sweeps ask for, with the keys that each refers to.

    A sweep asks for the stages that it had when it last ran, and for those of its file as it is
    today. `notes` say what could not be read, each in one line. `is_known` is false if nobody can
    tell what is asked for: then every stage may be needed.
    """

    references: Mapping[str, frozenset[str]]
    notes: tuple[str, ...]
    is_known: bool


def recorded_needs(store: Store) -> RecordedNeeds:
    """What the sweeps ask for that ran in a store."""
    found: dict[str, set[str]] = {}
    notes = [f"{path} is damaged" for path in damaged_plans(store)]
    sweeps = recorded_sweeps(store)
    is_known = bool(sweeps) and not notes
    for sweep in sweeps:
        for stage in sweep.stages:
            found.setdefault(stage.key, set()).update(stage.parents.values())
        path = store.sweep_file(sweep.name)
        if path is None or not path.is_file():
            continue
        try:
            today = load_sweep(path, store)
        except UserError:
            notes.append(f"{path} has errors: its stages are those of its last run")
            continue
        for own in today.stages:
            parents = {*own.parents.values(), *own.checkpoints.values()}
            found.setdefault(own.key, set()).update(referred(store, parents))
    references = {key: frozenset(parents) for key, parents in found.items()}
    return RecordedNeeds(references, tuple(notes), is_known)
