"""From what a sweep file says about an embedding to its definition, and to one canonical form.

A description is a preset's name, a mapping `{type: NAME, option: value}` or a composition
`{type: rotary, transforms: [{type: yarn, factor: 4}, NAME]}`. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fope_lab.config.problems import FieldPath
from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding, Shape, check_definition
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.registry import EMBEDDINGS

Spec = str | Mapping[str, Any]


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


def check_embedding(spec: Spec, **sizes: int) -> None:
    """Raise EmbeddingError if the embedding cannot be built for `sizes`, the fields of a Shape.

    Torch-free.
    """
    check_definition(parse_embedding(spec), Shape(**sizes))


def longest_sequence(spec: Spec, **sizes: int) -> int | None:
    """Tokens of the longest sequence that an embedding has positions for; None where any will do.

    `sizes` are those of `check_embedding`. Torch-free.
    """
    return parse_embedding(spec).longest_sequence(Shape(**sizes))


def learned_parameters(spec: Spec, num_layers: int, **sizes: int) -> int:
    """How many parameters an embedding learns in a model of `num_layers`; `sizes` are those of
    `check_embedding`. Torch-free."""
    definition = parse_embedding(spec)
    of_layer = sum(math.prod(size) for size in definition.learned_sizes(Shape(**sizes)).values())
    return of_layer * (num_layers if definition.per_layer else 1)


def parse_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> Embedding:
    """The definition that a description stands for. Raises EmbeddingError."""
    return EMBEDDINGS.parse(spec, at=at)
