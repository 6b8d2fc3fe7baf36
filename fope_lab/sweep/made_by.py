"""What a finished stage ran with: its code and its parents, and whether they have changed since."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

from fope_lab.provenance.source import changed_files
from fope_lab.stages.key import parts_of_embedding, parts_of_stage
from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store import StageFolder, Store
from fope_lab.store.checkpoint import content_digest
from fope_lab.sweep.graph import Stage


def modules_of(stage: Stage) -> list[str]:
    """The modules that do a stage's work. They and what they import decide its numbers."""
    parts = parts_of_stage(stage.spec)
    if stage.model_spec is not None:
        parts += parts_of_embedding(stage.model_spec.embedding)
    module = stage.spec.entry_point.partition(":")[0]
    return list(dict.fromkeys([module, *(part.__module__ for part in parts)]))


class StageNode(Protocol):
    """What a graph of stages says of each."""

    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def parents(self) -> Mapping[str, str]: ...


def output_digest(folder: StageFolder) -> str | None:
    """The digest of what a finished stage leaves, without times; None if that is damaged."""
    checkpoint = folder.final_checkpoint()
    if checkpoint is None:
        return None
    return content_digest(checkpoint.path, without=(TRAINING_RECORD,))


def other_parents(
    stage: StageNode, stages: Mapping[str, StageNode], store: Store
) -> tuple[str, ...]:
    """The parents with other output now than a finished stage read, by their sections. `stages` has
    the parents by key. A parent counts as unchanged if its output is gone, and if the stage did not
    record what it read."""
    read = store.folder(stage.kind, stage.key).parents_read()
    found = (
        stages[key].section
        for role, key in stage.parents.items()
        if role in read
        and key in stages
        and output_digest(store.folder(stages[key].kind, key)) not in (None, read[role])
    )
    return tuple(dict.fromkeys(found))


def read_other_output(parents: Sequence[str]) -> str:
    """Why a finished stage is re-run whose `parents` have other output than it read."""
    have = "have" if len(parents) > 1 else "has"
    return f"finished earlier, but {', '.join(parents)} {have} other output now than it read"


class ChangesSince:
    """Compares what finished stages ran with to what is there today; reads each record once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = functools.cache(self._read)

    def within(self, store: Store) -> ChangesSince:
        """The same for another view of the store, such as a snapshot."""
        other = ChangesSince(store)
        other._changed = self._changed
        return other

    def files(self, stage: StageNode) -> tuple[str, ...]:
        """The files of code that have changed since a stage was finished, by their paths then."""
        makers = self._store.folder(stage.kind, stage.key).makers()
        names = [made_by.get("source") for made_by in makers]
        files = (path for name in names if isinstance(name, str) for path in self._changed(name))
        return tuple(dict.fromkeys(files))

    def of(self, stage: StageNode, stages: Mapping[str, StageNode]) -> tuple[str, ...]:
        """These files, and the sections of parents with other output; `stages` has those by key."""
        others = other_parents(stage, stages, self._store)
        return tuple(dict.fromkeys([*self.files(stage), *others]))

    def _read(self, name: str) -> tuple[str, ...]:
        return tuple(changed_files(self._store.source(name) or {}))
