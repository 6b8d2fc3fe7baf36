"""What a finished stage ran with: its code and its parents, and whether they have changed since."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Protocol

from fope_lab.provenance.source import changed_files
from fope_lab.stages import TrainingConfig
from fope_lab.stages.parts import parts_of_embedding, parts_of_stage
from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store import StageFolder, Store
from fope_lab.store.checkpoint import content_digest
from fope_lab.store.sources import Sources
from fope_lab.sweep.graph import Stage


def modules_of(stage: Stage) -> list[str]:
    """The modules that do a stage's work. They and what they import decide its numbers."""
    spec = stage.spec
    functions = [spec.entry_point, *([spec.start] if isinstance(spec, TrainingConfig) else [])]
    parts = parts_of_stage(spec)
    if stage.model_spec is not None:
        parts += parts_of_embedding(stage.model_spec.embedding)
    modules = [function.partition(":")[0] for function in functions]
    return list(dict.fromkeys([*modules, *(part.__module__ for part in parts)]))


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
    """The digest of what a finished stage leaves to its children; None if that is damaged.

    Equal work gives an equal digest: the record of a training, which has times, is left out.
    """
    checkpoint = folder.final_checkpoint()
    if checkpoint is None:
        return None
    return content_digest(checkpoint.path, without=(TRAINING_RECORD,))


class ChangesSince:
    """Compares what finished stages of a store ran with to what is there today.

    Each recorded state of the code is read once.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._sources = store, Sources(store.root)
        self._changed = functools.cache(self._read)

    def of(self, stage: StageNode, stages: Mapping[str, StageNode]) -> tuple[str, ...]:
        """What has changed since a stage was finished: paths of files at that time, and parents.

        `stages` has the parents by key; they are named by their sections. What the stage did not
        record, because it is older than the record, counts as unchanged, and so does a parent
        whose output is gone.
        """
        folder = self._folder(stage)
        names = [made_by.get("source") for made_by in folder.makers()]
        files = [path for name in names if isinstance(name, str) for path in self._changed(name)]
        read = folder.parents_read()
        parents = [
            stages[key].section
            for role, key in stage.parents.items()
            if role in read
            and key in stages
            and output_digest(self._folder(stages[key])) not in (None, read[role])
        ]
        return tuple(dict.fromkeys([*files, *parents]))

    def _folder(self, stage: StageNode) -> StageFolder:
        return self._store.folder(stage.kind, stage.key)

    def _read(self, name: str) -> tuple[str, ...]:
        return tuple(changed_files(self._sources.read(name) or {}))
