"""Sinusoidal position embedding: sines and cosines of the position, added to token embeddings.

Vaswani et al., "Attention Is All You Need", arXiv 1706.03762, §3.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Embedding, Named, Shape
from fope_lab.embeddings.rotary import cos_sin_at

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sinusoidal(Embedding, name="sinusoidal", source="Vaswani et al., arXiv 1706.03762, §3.5"):
    """Dimension 2i gets sin(n·ω_i) and 2i + 1 gets cos(n·ω_i), with ω_i = base^(−2i/width)."""

    place: ClassVar[str] = "tokens"

    base: Annotated[
        float,
        Interval(gt=1, le=1e15),
        Doc("The base of the frequencies: wave i has base^(−2i/width) radians per token."),
    ] = 10_000.0

    shift_invariant = False  # positions are absolute

    def embed(self, shape: Shape, tensors: Named, hidden: Tensor, positions: Tensor) -> Tensor:
        """Add the waves in float32 or a wider type, and return hidden's dtype.

        The last dimension of an odd width is a sine.
        """
        import torch

        width = hidden.shape[-1]
        exponents = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device) / width
        cos, sin = cos_sin_at(self.base**-exponents, positions)
        waves = torch.stack((sin, cos), dim=-1).flatten(-2)[..., :width]
        return (hidden + waves).to(hidden.dtype)
