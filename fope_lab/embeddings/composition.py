"""Embeddings from canonical compositions, without checks: an exported model has this, not `spec`.

It needs the standard library only, and no embedding but those that the model contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, FrequencyTransform

Spec = Mapping[str, Any] | Embedding
"""A canonical composition, as `Embedding.canonical` returns it, or its definition."""


def parse_embedding(spec: Spec) -> Embedding:
    """The definition that a canonical composition describes. Raises KeyError for unknown names."""
    if isinstance(spec, Embedding):
        return spec
    return EMBEDDING_TYPES.all()[spec["type"]](**_options(spec))


def _transform(spec: Mapping[str, Any]) -> FrequencyTransform:
    return TRANSFORM_TYPES.all()[spec["type"]](**_options(spec))


def _options(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a composition; every list among them holds transforms."""
    return {
        option: tuple(map(_transform, value)) if isinstance(value, list) else value
        for option, value in spec.items()
        if option != "type"
    }
