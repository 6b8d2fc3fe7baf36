"""Which code a finished stage ran with, and whether it has changed since."""

from __future__ import annotations

import functools
from pathlib import Path

from fope_lab.provenance.source import changed_files
from fope_lab.stages import TrainingConfig
from fope_lab.stages.parts import parts_of_embedding, parts_of_stage
from fope_lab.store import StageFolder
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


class CodeChanges:
    """Compares the code that stages ran with to today's; each recorded state is read once."""

    def __init__(self, store_root: Path) -> None:
        self._sources = Sources(store_root)
        self._changed = functools.cache(self._read)

    def of(self, folder: StageFolder) -> tuple[str, ...]:
        """The files that have changed since a finished stage ran, by their paths at that time.

        A stage that did not record its code, because it is older than the record, has none.
        """
        names = [made_by.get("source") for made_by in folder.makers()]
        changed = (path for name in names if isinstance(name, str) for path in self._changed(name))
        return tuple(dict.fromkeys(changed))

    def _read(self, name: str) -> tuple[str, ...]:
        return tuple(changed_files(self._sources.read(name) or {}))
