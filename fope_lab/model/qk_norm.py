"""QK-norm: queries and keys are normalised before a position embedding rotates them.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, §5.5 and Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class HeadLayerNorm(nn.Module):
    """Each head gets mean 0 and variance 1, without parameters, as in the text of the paper."""

    def __init__(self, num_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.eps = num_heads, head_dim, eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each head of (…, num_heads · head_dim)."""
        heads = x.unflatten(-1, (self.num_heads, self.head_dim))
        return F.layer_norm(heads, (self.head_dim,), eps=self.eps).flatten(-2)


QK_NORMS: Mapping[str, Callable[[int, int, float], nn.Module]] = {
    "none": lambda num_heads, head_dim, eps: nn.Identity(),
    "layer": HeadLayerNorm,
    # Over all heads together, with a learned gain, as in the released code.
    "rms": lambda num_heads, head_dim, eps: nn.RMSNorm(num_heads * head_dim, eps=eps),
}
"""The constructors from num_heads, head_dim and ε to a module, by the option `qk_norm`."""
