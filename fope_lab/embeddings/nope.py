"""No position embedding: order reaches the model through the causal mask alone.

Kazemnejad et al., "The Impact of Positional Encoding on Length Generalization in Transformers",
arXiv 2305.19466.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fope_lab.embeddings.base import Embedding


@dataclass(frozen=True, kw_only=True)
class Nope(Embedding, name="nope", source="Kazemnejad et al., arXiv 2305.19466"):
    """Queries, keys, logits and token embeddings stay as they are."""

    place: ClassVar[str] = "nowhere"
