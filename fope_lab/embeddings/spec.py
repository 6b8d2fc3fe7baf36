"""From what a sweep file says about an embedding to its definition, and to one canonical form.

A description is a preset's name, a mapping `{type: NAME, option: value}` or a composition
`{type: rotary, transforms: [{type: yarn, factor: 4}, NAME]}`. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.config.problems import FieldPath
from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.registry import EMBEDDINGS

Spec = str | Mapping[str, Any] | Embedding
"""A description, or the definition that it stands for."""


def embedding_names() -> list[str]:
    """Every preset, then each mechanism that no preset is made of."""
    used = {preset.composition["type"] for preset in PRESETS.values()}
    return [*PRESETS, *(name for name in EMBEDDING_TYPES.all() if name not in used)]


def resolve_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> dict[str, Any]:
    """The canonical composition of a description: equal embeddings give equal dicts.

    Presets become compositions and options that have their default are left out. `at` is the
    field's path in errors. Raises EmbeddingError with every problem found.
    """
    return parse_embedding(spec, at).canonical()


def parse_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> Embedding:
    """The definition that a description stands for. Raises EmbeddingError."""
    return spec if isinstance(spec, Embedding) else EMBEDDINGS.parse(spec, at=at)
