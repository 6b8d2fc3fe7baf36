"""Embeddings from canonical compositions, without checks: an exported model has this, not `spec`.

It needs the standard library only, and no embedding but those that the model contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding, PatternLayer
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, FrequencyTransform
from fope_lab.embeddings.query_scales import QUERY_SCALE_TYPES, QueryScale

Spec = Mapping[str, Any] | Embedding
"""A canonical composition, as `Embedding.canonical` returns it, or its definition."""


def parse_embedding(spec: Spec) -> Embedding:
    """The definition that a canonical composition describes. Raises KeyError for unknown names."""
    if isinstance(spec, Embedding):
        return spec
    return EMBEDDING_TYPES.all()[spec["type"]](**_options(spec))


def _transform(spec: Mapping[str, Any]) -> FrequencyTransform:
    return TRANSFORM_TYPES.all()[spec["type"]](**_options(spec))


def _layer(spec: Mapping[str, Any]) -> PatternLayer:
    return PatternLayer(**{**spec, "embedding": parse_embedding(spec["embedding"])})


def _query_scale(spec: Mapping[str, Any]) -> QueryScale:
    return QUERY_SCALE_TYPES.all()[spec["type"]](**_options(spec))


NESTED = {"transforms": _transform, "pattern": _layer, "query_scale": _query_scale}
"""What the options hold that are not plain values, or lists of it."""


def _options(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {option: nested(option, value) for option, value in spec.items() if option != "type"}


def nested(option: str, value: Any) -> Any:
    """The value of an option as a definition has it, from its canonical form."""
    read = NESTED.get(option, lambda plain: plain)
    return tuple(map(read, value)) if isinstance(value, list | tuple) else value and read(value)
