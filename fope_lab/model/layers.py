"""What a decoder layer has beside attention: feed-forward blocks, norms, and their linear maps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.model.config import ModelConfig

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """The feed-forward down(activation(up(x))) (Vaswani et al., arXiv 1706.03762, Eq. 2), or, with
    a gate, down(activation(gate(x)) · up(x)) (Shazeer, arXiv 2002.05202, Eq. 6)."""

    def __init__(self, activation: Activation, gated: bool, config: ModelConfig) -> None:
        super().__init__()
        self.activation = activation
        width, inner, bias = config.hidden_size, config.intermediate_size, config.biases
        self.gate_proj = UninitializedLinear(width, inner, bias=bias) if gated else None
        self.up_proj = UninitializedLinear(width, inner, bias=bias)
        self.down_proj = UninitializedLinear(inner, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(hidden)))
        return self.down_proj(self.activation(self.gate_proj(hidden)) * self.up_proj(hidden))


GELU_TANH = functools.partial(F.gelu, approximate="tanh")

FEED_FORWARDS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "swiglu": functools.partial(FeedForward, F.silu, True),
    "geglu": functools.partial(FeedForward, GELU_TANH, True),  # Gemma's
    "relu": functools.partial(FeedForward, F.relu, False),
    "gelu": functools.partial(FeedForward, F.gelu, False),
    "gelu_tanh": functools.partial(FeedForward, GELU_TANH, False),  # GPT-2's
}
"""The constructors of modules on (batch, length, width), by the option `feed_forward`."""


class UninitializedLinear(nn.Linear):
    """A linear map with uninitialized weights, which the decoder draws, and a bias of 0 or none.

    `nn.Linear` would draw weights from the global generator, which is slow and changes what others
    draw from it.
    """

    def reset_parameters(self) -> None:
        """Set the bias to 0; the weights stay uninitialized."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)


NORMS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "rms": lambda config: nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
    "layer": lambda config: nn.LayerNorm(
        config.hidden_size, eps=config.norm_eps, bias=config.biases
    ),
}
"""The constructors of modules on (…, width), by the option `norm`. Gains start at 1, and biases at
0."""


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
