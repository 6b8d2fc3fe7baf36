"""The feed-forward blocks of a decoder layer: gated (SwiGLU, GeGLU) or plain (ReLU, GELU)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.model.config import ModelConfig
from fope_lab.model.uninitialized_linear import UninitializedLinear

Activation = Callable[[Tensor], Tensor]


class Gated(nn.Module):
    """The feed-forward down(activation(gate(x)) · up(x)) (Shazeer, arXiv 2002.05202, Eq. 6)."""

    def __init__(self, activation: Activation, config: ModelConfig) -> None:
        super().__init__()
        self.activation = activation
        width, inner, bias = config.hidden_size, config.intermediate_size, config.biases
        self.gate_proj = UninitializedLinear(width, inner, bias=bias)
        self.up_proj = UninitializedLinear(width, inner, bias=bias)
        self.down_proj = UninitializedLinear(inner, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        return self.down_proj(self.activation(self.gate_proj(hidden)) * self.up_proj(hidden))


class Plain(nn.Module):
    """The feed-forward down(activation(up(x))) (Vaswani et al., arXiv 1706.03762, Eq. 2)."""

    def __init__(self, activation: Activation, config: ModelConfig) -> None:
        super().__init__()
        self.activation = activation
        width, inner, bias = config.hidden_size, config.intermediate_size, config.biases
        self.up_proj = UninitializedLinear(width, inner, bias=bias)
        self.down_proj = UninitializedLinear(inner, width, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        return self.down_proj(self.activation(self.up_proj(hidden)))


GELU_TANH = functools.partial(F.gelu, approximate="tanh")

FEED_FORWARDS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "swiglu": functools.partial(Gated, F.silu),
    "geglu": functools.partial(Gated, GELU_TANH),  # Gemma's
    "relu": functools.partial(Plain, F.relu),
    "gelu": functools.partial(Plain, F.gelu),
    "gelu_tanh": functools.partial(Plain, GELU_TANH),  # GPT-2's
}
"""The constructors of modules on (batch, length, width), by the option `feed_forward`."""
