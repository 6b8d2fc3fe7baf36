"""QK-norm: queries and keys are normalised before a position embedding turns them.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, §5.5 and Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class HeadLayerNorm(nn.Module):
    """Each head's mean becomes 0 and its variance 1, without parameters (the paper's text)."""

    def __init__(self, num_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.eps = num_heads, head_dim, eps

    def forward(self, x: Tensor) -> Tensor:
        """(…, num_heads · head_dim) to the same."""
        heads = x.unflatten(-1, (self.num_heads, self.head_dim))
        return F.layer_norm(heads, (self.head_dim,), eps=self.eps).flatten(-2)


def _none(num_heads: int, head_dim: int, eps: float) -> nn.Module:
    return nn.Identity()


def _rms(num_heads: int, head_dim: int, eps: float) -> nn.Module:
    """Over all heads together, with a learned gain (the released code)."""
    return nn.RMSNorm(num_heads * head_dim, eps=eps)


QK_NORMS: Mapping[str, Callable[[int, int, float], nn.Module]] = {
    "none": _none,
    "layer": HeadLayerNorm,
    "rms": _rms,
}
"""By `qk_norm`: from num_heads, head_dim and ε to a module on (…, num_heads · head_dim)."""
