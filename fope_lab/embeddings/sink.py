"""A sink: each head learns a logit that takes weight away from all tokens, as in gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fope_lab.embeddings.base import Named, Shape, Tensors
from fope_lab.embeddings.rotary import Rotary

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class Sink(Rotary, name="sink", source="gpt-oss (OpenAI, 2025), as released"):
    """RoPE, and one more key of every query, which has a learned logit and no value."""

    place: ClassVar[str] = "attention"

    shared_layers: ClassVar[bool] = False

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"sink": (shape.num_heads,)}

    def tensors(self, shape: Shape) -> Tensors:
        """Beside RoPE's, `sink` of 0: at first it has the weight of a token whose logit is 0."""
        import torch

        sink = torch.zeros(self.learned_sizes(shape)["sink"])
        return replace(super().tensors(shape), learned={"sink": sink})

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        return replace(super().scores(shape, tensors, q, kept, at), sink=tensors["sink"])
