"""Sandwich: the bias is the product of two sinusoidal embeddings, which falls with distance.

Chi et al., "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis",
arXiv 2212.10356, §5, and the released code for the ratios of the heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Named, RelativeBias, Shape, Tensors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sandwich(RelativeBias, name="sandwich", source="Chi et al., arXiv 2212.10356, §5"):
    """The bias Σ_j cos(|i − j| · 10000^(−2j/d̄)) over d̄/2 frequencies, divided by 8h/num_heads for
    head h = 1 … num_heads."""

    dimensions: Annotated[int, Interval(ge=2, le=2**16), Doc("d̄, twice the frequencies.")] = 128

    def tensors(self, shape: Shape) -> Tensors:
        """The constants `omegas` (d̄/2,) and `ratios` (num_heads,), float32."""
        import torch

        j = torch.arange(self.dimensions // 2, dtype=torch.float64)
        omegas = 10_000.0 ** (-2 * j / self.dimensions)
        heads = torch.arange(1, shape.num_heads + 1, dtype=torch.float64)
        ratios = heads * 8 / shape.num_heads
        return Tensors(constants={"omegas": omegas.float(), "ratios": ratios.float()})

    def of_distance(self, shape: Shape, tensors: Named, distance: Tensor) -> Tensor:
        total = distance.new_zeros(distance.shape, dtype=tensors["omegas"].dtype)
        for omega in tensors["omegas"]:  # one by one: all at once would be as many biases
            total = total + (distance * omega).cos()
        return total / tensors["ratios"][:, None, None]
