"""ALiBi: attention logits fall linearly with distance, at a slope of its own for each head.

Press et al., "Train Short, Test Long", arXiv 2108.12409, §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Named, RelativeBias, Shape, Tensors

if TYPE_CHECKING:
    from torch import Tensor


def geometric_slopes(num_heads: int) -> list[float]:
    """The slopes 2^(−8h/num_heads) of the heads h = 1 … num_heads (arXiv 2108.12409, §3)."""
    return [2 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)]


def official_slopes(num_heads: int) -> list[float]:
    """The slopes of the released code, which are geometric if num_heads is a power of two.

    Other numbers of heads have the slopes of the next smaller power of two, followed by every
    second slope of twice that number.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    return geometric_slopes(power) + geometric_slopes(2 * power)[::2][: num_heads - power]


SLOPES = {"official": official_slopes, "geometric": geometric_slopes}


@dataclass(frozen=True, kw_only=True)
class Alibi(RelativeBias, name="alibi", source="Press et al., arXiv 2108.12409, §3"):
    """The bias is −slope·|i − j|, with a fixed slope for each head."""

    slopes: Annotated[
        Literal["official", "geometric"],
        Doc(
            "The slopes if num_heads is not a power of two. official: those of the released code."
            " geometric: 2^(−8h/num_heads)."
        ),
    ] = "official"

    def tensors(self, shape: Shape) -> Tensors:
        """The constant `slopes` (num_heads,), float32."""
        import torch

        slopes = SLOPES[self.slopes](shape.num_heads)
        constant = torch.tensor(slopes, dtype=torch.float32, device="cpu")
        return Tensors(constants={"slopes": constant})

    def of_distance(self, shape: Shape, tensors: Named, distance: Tensor) -> Tensor:
        return -tensors["slopes"][:, None, None] * distance
