"""A stage's configuration as JSON values: as it is shown, and as it is hashed for the key.

Data, corpora, tokenizers and analyses are in their shortest form in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.config.options import default_of, option_name
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.trained import TrainedTokenizer
from fope_lab.stages.base import StageConfig

PLAIN = (str, int, float, type(None))
"""The types of values that are JSON as they are."""


def config_json(spec: StageConfig) -> dict[str, Any]:
    """The kind and every field of a configuration."""
    return {"kind": spec.kind, **_json(spec, lambda section, fields: fields)}


def hashed_fields(spec: StageConfig) -> dict[str, Any]:
    """The fields of a configuration that its key depends on.

    Fields at their defaults are left out, so that a field added later leaves old keys as they are,
    and so are those that `excluded_from_key` names.
    """
    return _json(spec, _in_key)


@dataclass(frozen=True)
class _Field:
    """A field of a dataclass: its name there, its name in a file, and its default."""

    name: str
    option: str
    default: Any


@functools.cache
def _fields(kind: Any) -> tuple[_Field, ...] | None:
    """The fields of a dataclass that has no shorter form; None for any other type."""
    if issubclass(kind, Analysis | Corpus | Data | TrainedTokenizer) or not is_dataclass(kind):
        return None
    return tuple(_Field(f.name, option_name(f), default_of(f)) for f in fields(kind))


def _in_key(section: Any, fields: Iterable[_Field]) -> Iterator[_Field]:
    outside = getattr(section, "excluded_from_key", ())
    for field in fields:
        if field.name not in outside and getattr(section, field.name) != field.default:
            yield field


def _json(value: Any, select: Callable[[Any, Iterable[_Field]], Iterable[_Field]]) -> Any:
    """A value as JSON values, with the fields of each dataclass that `select` picks."""
    if isinstance(value, PLAIN):  # most values of a large grid
        return value
    if isinstance(value, dict):
        return {name: _json(item, select) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, select) for item in value]
    kind: Any = type(value)
    if (known := _fields(kind)) is not None:
        shown = select(value, known)
        return {field.option: _json(getattr(value, field.name), select) for field in shown}
    return value.canonical() if hasattr(value, "canonical") else value
