"""A stage's configuration as JSON values: as it is shown, and as it is hashed for the key.

Data, corpora, tokenizers and analyses are in their shortest form in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from fope_lab.analysis import Analysis
from fope_lab.config.options import default_of, option_name
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.recipe import Data
from fope_lab.data.tokenizers.trained import TrainedTokenizer
from fope_lab.stages.base import StageConfig


def config_json(spec: StageConfig) -> dict[str, Any]:
    """The kind and every field of a configuration."""
    return {"kind": spec.kind, **_json(spec, lambda section: frozenset())}


def hashed_fields(spec: StageConfig) -> dict[str, Any]:
    """The fields of a configuration that its key depends on.

    Fields at their defaults are left out, so that a field added later leaves old keys as they are,
    and so are those that `excluded_from_key` names.
    """
    return _json(spec, _outside_key)


def _outside_key(section: Any) -> frozenset[str]:
    at_default = (f.name for f in fields(section) if getattr(section, f.name) == default_of(f))
    return frozenset(at_default).union(getattr(section, "excluded_from_key", ()))


def _json(value: Any, left_out: Callable[[Any], frozenset[str]]) -> Any:
    """A value as JSON values, without the fields of each dataclass that `left_out` names."""
    if isinstance(value, Analysis | Corpus | Data | TrainedTokenizer):
        return value.canonical()
    if is_dataclass(value):
        shown = (field for field in fields(value) if field.name not in left_out(value))
        return {option_name(f): _json(getattr(value, f.name), left_out) for f in shown}
    if isinstance(value, dict):
        return {name: _json(item, left_out) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, left_out) for item in value]
    return value
