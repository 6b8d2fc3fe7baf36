"""Position embeddings: mechanisms, frequency transforms and presets, one file for each.

`build_embedding` gives the module; everything else works without torch, and importing this package
does not import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.base import Embedding, EmbeddingError, Shape, check_definition
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.spec import (
    EMBEDDINGS,
    embedding_names,
    parse_embedding,
    preset_of,
    resolve_embedding,
)

if TYPE_CHECKING:
    from fope_lab.embeddings.module import build_embedding

__all__ = [
    "EMBEDDINGS",
    "PRESETS",
    "Embedding",
    "EmbeddingError",
    "Shape",
    "build_embedding",
    "check_definition",
    "embedding_names",
    "parse_embedding",
    "preset_of",
    "resolve_embedding",
]


def __getattr__(name: str) -> Any:
    if name == "build_embedding":
        return importlib.import_module("fope_lab.embeddings.module").build_embedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
