"""KERPLE: attention logits decrease with distance along a kernel that each head learns.

Chi et al., "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
arXiv 2205.09921: the logarithmic kernel and the power kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import Named, RelativeBias, Shape, Tensors, generator

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 0.01
"""The least distance of initial p and a from the ends of their range, as in the released code."""


@dataclass(frozen=True, kw_only=True)
class Kernel(RelativeBias):
    """A kernel of the distance whose p and a are learned for each head."""

    shared_layers: Annotated[bool, Doc("Whether all layers share p and a.")] = True


@dataclass(frozen=True, kw_only=True)
class Kerple(Kernel, name="kerple", source="Chi et al., arXiv 2205.09921, logarithmic"):
    """The bias is −p·ln(1 + a·|i − j|), with p > 0 and a > 0 learned for each head."""

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The sizes of the logarithms of p and a, which keep both above 0."""
        return {"log_p": (shape.num_heads,), "log_a": (shape.num_heads,)}

    def tensors(self, shape: Shape) -> Tensors:
        """The logarithms (num_heads,) of p, uniform in (0, 2), and of a, uniform in (0, 1)."""
        p, a = _initial_values("kerple", shape)
        return Tensors(learned={"log_p": p.log(), "log_a": a.log()})

    def of_distance(self, shape: Shape, tensors: Named, distance: Tensor) -> Tensor:
        p, a = (_for_heads(tensors[name]).exp() for name in ("log_p", "log_a"))
        return -p * (a * distance).log1p()


@dataclass(frozen=True, kw_only=True)
class KerplePower(Kernel, name="kerple_power", source="Chi et al., arXiv 2205.09921, power"):
    """The bias is −a·|i − j|^p, with a > 0 and 0 < p < 2 learned for each head."""

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The sizes of the logarithm of a and the logit of p/2, which keep both in their ranges."""
        return {"log_a": (shape.num_heads,), "p_logit": (shape.num_heads,)}

    def tensors(self, shape: Shape) -> Tensors:
        """The tensors (num_heads,) for a uniform in (0, 1) and p uniform in (0, 2)."""
        p, a = _initial_values("kerple_power", shape)
        return Tensors(learned={"log_a": a.log(), "p_logit": (p / 2).logit()})

    def of_distance(self, shape: Shape, tensors: Named, distance: Tensor) -> Tensor:
        a = _for_heads(tensors["log_a"]).exp()
        p = 2 * _for_heads(tensors["p_logit"]).sigmoid()
        return -a * distance**p  # torch's pow gives p the gradient 0 at distance 0


def _initial_values(what: str, shape: Shape) -> tuple[Tensor, Tensor]:
    """Initial p in (0, 2) and a in (0, 1), each (num_heads,), as in the released code."""
    import torch

    uniform = torch.rand(
        2, shape.num_heads, generator=generator(what, shape), dtype=torch.float32, device="cpu"
    )
    return (2 * uniform[0]).clamp(LEAST, 2 - LEAST), uniform[1].clamp(LEAST)


def _for_heads(learned: Tensor) -> Tensor:
    """A tensor (num_heads,) as (num_heads, 1, 1), in float32 or a wider type."""
    import torch

    return learned.to(torch.promote_types(learned.dtype, torch.float32))[:, None, None]
