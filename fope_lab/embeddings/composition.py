"""Embeddings from canonical compositions, unchecked: what an exported model has in place of `spec`.

It needs the standard library alone, and only the embeddings that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.embeddings.base import Embedding, FrequencyTransform, embedding_types, transform_types

Spec = Mapping[str, Any]
"""A canonical composition, as `spec.resolve_embedding` returns it."""


def resolve_embedding(spec: Spec) -> dict[str, Any]:
    """The composition itself: it is canonical."""
    return dict(spec)


def parse_embedding(spec: Spec) -> Embedding:
    """The definition that a canonical composition stands for. Raises KeyError for unknown names."""
    return embedding_types()[spec["type"]](**_options(spec))


def _transform(spec: Spec) -> FrequencyTransform:
    return transform_types()[spec["type"]](**_options(spec))


def _options(spec: Spec) -> dict[str, Any]:
    """The options, whose only lists are of transforms."""
    return {
        option: tuple(map(_transform, value)) if isinstance(value, list) else value
        for option, value in spec.items()
        if option != "type"
    }
