"""The kinds of stages that a sweep file may name: those that train, and all evaluations."""

from __future__ import annotations

import dataclasses

from fope_lab.config.options import Entry, entry_of
from fope_lab.config.registry import Registry
from fope_lab.stages import StageConfig
from fope_lab.stages.base import STAGE_TYPES


class _FileKinds(Registry[StageConfig]):
    """Every kind of stage, without the kinds that only the plan makes, such as prepare-data."""

    def all_names(self) -> tuple[str, ...]:
        """The kinds that a sweep file may name."""
        return tuple(name for name, kind in self._types.all().items() if kind.user_facing)

    def entry(self, name: str) -> Entry[StageConfig]:
        """The options of a kind, without the fields that something else gives."""
        kind = self._types.all()[name]
        entry = entry_of(kind)
        options = {key: o for key, o in entry.options.items() if key not in kind.outside_file}
        return dataclasses.replace(entry, options=options, refused=kind.outside_file)


FILE_KINDS = _FileKinds("stage kind", STAGE_TYPES, key="kind")
"""Every kind that a sweep file may name."""
