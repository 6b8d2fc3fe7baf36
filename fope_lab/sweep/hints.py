"""What an error of a stage's section says about the way to get what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fope_lab.config import pydantic_errors
from fope_lab.config.problems import FieldPath, Problem, format_path
from fope_lab.stages.base import STAGE_TYPES, UNTRAINED
from fope_lab.sweep.apply_axes import StageSection

NUMBERS = (pydantic_errors.NEEDS["int_type"], pydantic_errors.NEEDS["float_type"])
"""What is wanted where a single number belongs."""
_EXPONENTS = {"k": "e3", "m": "e6", "b": "e9", "g": "e9"}
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kmbgKMBG])")
GO_UNTRAINED = f"train: {UNTRAINED} extends without training"


def needs_of(problem: Problem, section: StageSection) -> str | None:
    """Return what belongs in place of a wrong value; `problem` is of a path in the section."""
    needs, value = problem.needs, _value(section.fields, problem.path)
    if needs in NUMBERS and isinstance(value, list):
        axis = format_path((section.name, *problem.path))
        return f"{needs}; to compare several, write them under grid: {{{axis}: […]}}"
    if needs in NUMBERS and isinstance(value, str) and (found := _SUFFIXED.fullmatch(value)):
        return f"{needs}; {value} is written {found[1]}{_EXPONENTS[found[2].lower()]}"
    if problem.path in (("train",), ("train", "tokens")):
        return _with_untrained(needs, value, section.fields.get("kind"))
    return needs


def _with_untrained(needs: str | None, value: Any, kind: Any) -> str | None:
    """What belongs in place of a training's length, where the file seems to want no training."""
    config = STAGE_TYPES.all().get(kind) if isinstance(kind, str) else None
    if config is None:
        return needs
    if config.untrained is not None:
        needs = needs or "a mapping of its settings"  # where there is none
        return f"{needs}; {GO_UNTRAINED}"
    if needs is not None and value in (UNTRAINED, None, 0):
        return f"{needs}; only a stage of kind extend goes without training"
    return needs


def _value(fields: Mapping[str, Any], path: FieldPath) -> Any:
    """The value at a path; None if there is none."""
    value: Any = fields
    for part in path:
        known = isinstance(value, Mapping) and part in value
        value = value[part] if known else None
    return value
