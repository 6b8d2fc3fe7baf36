"""The kinds of stages that a sweep file may name, and hints about wrong values in sections."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config import pydantic_errors
from fope_lab.config.cache import Cache
from fope_lab.config.options import Entry, Registry, entry_of
from fope_lab.config.problems import FieldPath, Problem, format_path
from fope_lab.stages import StageConfig
from fope_lab.stages.base import STAGE_TYPES, UNTRAINED
from fope_lab.sweep.grid_point import StageFields

TRAIN, DATA = "train", "data"
NO_DATA = (
    "has no effect: train is none, so no data is read; zip goes through both, as in"
    " {extend.train: [none, {…}], extend.data: [null, {…}]}"
)


class _FileKinds(Registry[StageConfig]):
    """Every kind that a sweep file may name."""

    def all_names(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self._types.all().items() if kind.user_facing)

    def entry(self, name: str) -> Entry[StageConfig]:
        """The options of a kind, without the fields that something else gives."""
        return _in_file(self._types.all()[name])


def _in_file(kind: type[StageConfig], title: str = "") -> Entry[StageConfig]:
    entry = entry_of(kind, title)
    options = {key: o for key, o in entry.options.items() if key not in kind.outside_file}
    return dataclasses.replace(entry, options=options, refused=kind.outside_file)


FILE_KINDS = _FileKinds("stage kind", STAGE_TYPES, key="kind")
"""Every kind that a sweep file may name."""


def parse_stage(given: Mapping[str, Any], base: Path, cache: Cache) -> StageConfig:
    """Return the stage of a section, which may be one without training. Raises ConfigError."""
    name = given.get("kind")
    kind = STAGE_TYPES.all().get(name) if isinstance(name, str) else None
    if kind is None or kind.untrained is None or given.get(TRAIN) != UNTRAINED:
        return FILE_KINDS.parse(given, base, cache=cache)
    left = {key: value for key, value in given.items() if key not in ("kind", TRAIN)}
    if left.get(DATA, ...) is None:
        del left[DATA]
    entry = _in_file(kind.untrained, title="train: none")
    refused = {**entry.refused, DATA: NO_DATA}
    return dataclasses.replace(entry, refused=refused).read(left, base, cache)


NUMBERS = (pydantic_errors.NEEDS["int_type"], pydantic_errors.NEEDS["float_type"])
"""What is wanted where a single number belongs."""
_EXPONENTS = {"k": "e3", "m": "e6", "b": "e9", "g": "e9"}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kmbgKMBG])")


def needs_of(problem: Problem, section: StageFields) -> str | None:
    """Return what belongs in place of a wrong value; `problem` is of a path in the section."""
    needs, value = problem.needs, _value(section.fields, problem.path)
    if needs in NUMBERS and isinstance(value, list):
        axis = format_path((section.name, *problem.path))
        return f"{needs}; to compare several, write them under grid: {{{axis}: […]}}"
    if needs in NUMBERS and isinstance(value, str) and (found := _SUFFIXED.fullmatch(value)):
        return f"{needs}; {value} is written {found[1]}{_EXPONENTS[found[2].lower()]}"
    if problem.path not in (("train",), ("train", "tokens")):
        return needs
    kind = section.fields.get("kind")
    config = STAGE_TYPES.all().get(kind) if isinstance(kind, str) else None
    if config is not None and config.untrained is not None:
        needs = needs or "a mapping of its settings"  # where there is none
        return f"{needs}; train: {UNTRAINED} extends without training"
    if config is not None and needs is not None and value in (UNTRAINED, None, 0):
        return f"{needs}; only a stage of kind extend goes without training"
    return needs


def _value(fields: Mapping[str, Any], path: FieldPath) -> Any:
    value: Any = fields
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
