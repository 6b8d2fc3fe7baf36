"""The feed-forward blocks of a decoder layer: gated (SwiGLU, GeGLU) or plain (ReLU)."""

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
        self.gate_proj = UninitializedLinear(config.hidden_size, config.intermediate_size)
        self.up_proj = UninitializedLinear(config.hidden_size, config.intermediate_size)
        self.down_proj = UninitializedLinear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        return self.down_proj(self.activation(self.gate_proj(hidden)) * self.up_proj(hidden))


class Plain(nn.Module):
    """The feed-forward down(activation(up(x))) without biases (arXiv 1706.03762, Eq. 2)."""

    def __init__(self, activation: Activation, config: ModelConfig) -> None:
        super().__init__()
        self.activation = activation
        self.up_proj = UninitializedLinear(config.hidden_size, config.intermediate_size)
        self.down_proj = UninitializedLinear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        return self.down_proj(self.activation(self.up_proj(hidden)))


FEED_FORWARDS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "swiglu": functools.partial(Gated, F.silu),
    # Gemma's GELU is the tanh approximation.
    "geglu": functools.partial(Gated, functools.partial(F.gelu, approximate="tanh")),
    "relu": functools.partial(Plain, F.relu),
}
"""The constructors of modules on (batch, length, width), by the option `feed_forward`."""
