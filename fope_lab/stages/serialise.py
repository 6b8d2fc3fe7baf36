"""A stage's configuration as JSON values: as it is shown, and as it is hashed for the key.

Embeddings, data, corpora, tokenizers and analyses are in their shortest form in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.config.cache import once_for_each
from fope_lab.config.options import default_of, option_name
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.trained import TrainedTokenizer
from fope_lab.embeddings import Embedding
from fope_lab.stages.base import StageConfig

PLAIN = (str, int, float, type(None))
"""The types of values that are JSON as they are."""
SHORTENED = (Analysis, Corpus, Data, Embedding, TrainedTokenizer)
"""The dataclasses that have a shorter form, `canonical`."""


def config_json(spec: StageConfig) -> dict[str, Any]:
    """The kind and every field of a configuration."""
    return {"kind": spec.kind, **_shown(spec)}


def hashed_fields(spec: StageConfig) -> Mapping[str, Any]:
    """The fields of a configuration that its key depends on.

    Fields at their defaults are left out, so that a field added later leaves old keys as they are,
    and so are those that `excluded_from_key` names.
    """
    return _hashed(spec)


@dataclass(frozen=True)
class _Field:
    """A field of a dataclass: its name there, its name in a file, and its default."""

    name: str
    option: str
    default: Any


@functools.cache
def _fields(kind: Any) -> tuple[_Field, ...] | None:
    """The fields of a dataclass that has no shorter form; None for any other type."""
    if issubclass(kind, SHORTENED) or not is_dataclass(kind):
        return None
    return tuple(_Field(f.name, option_name(f), default_of(f)) for f in fields(kind))


# The stages of a grid share most sections, so each section is turned into JSON once.


@once_for_each
def _shown(section: Any) -> dict[str, Any]:
    kind: Any = type(section)
    known = _fields(kind) or ()
    return {field.option: _json(getattr(section, field.name), _shown) for field in known}


@once_for_each
def _hashed(section: Any) -> dict[str, Any]:
    kind: Any = type(section)
    outside = getattr(section, "excluded_from_key", ())
    return {
        field.option: _json(value, _hashed)
        for field in _fields(kind) or ()
        if field.name not in outside and (value := getattr(section, field.name)) != field.default
    }


@once_for_each
def _canonical(value: Any) -> Any:
    return value.canonical()


def _json(value: Any, of_section: Callable[[Any], dict[str, Any]]) -> Any:
    """A value as JSON values, with each dataclass as `of_section` gives it."""
    if isinstance(value, PLAIN):  # most values of a large grid
        return value
    if isinstance(value, dict):
        return {name: _json(item, of_section) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, of_section) for item in value]
    kind: Any = type(value)
    if _fields(kind) is not None:
        return of_section(value)
    return _canonical(value) if hasattr(value, "canonical") else value
