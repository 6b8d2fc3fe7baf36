"""What a decoder layer has beside attention: feed-forward blocks, norms, and their linear maps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.model.config import BIASED, ModelConfig

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """The feed-forward down(activation(up(x))) (Vaswani et al., arXiv 1706.03762, Eq. 2), or, with
    a gate, down(activation(gate(x)) · up(x)) (Shazeer, arXiv 2002.05202, Eq. 6)."""

    def __init__(self, activation: Activation, gated: bool, config: ModelConfig) -> None:
        super().__init__()
        self.activation = activation
        width, inner = config.hidden_size, config.intermediate_size
        bias = config.biases in BIASED["mlp"]
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


class ShiftedRMSNorm(nn.Module):
    """RMSNorm with the gain 1 + weight, as in Gemma, computed in float32 or wider."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = torch.promote_types(x.dtype, torch.float32)
        gain = 1.0 + self.weight.to(wide)
        return F.rms_norm(x.to(wide), self.weight.shape, gain, self.eps).to(x.dtype)


NORMS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "rms": lambda config: nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
    "shifted_rms": lambda config: ShiftedRMSNorm(config.hidden_size, config.norm_eps),
    "layer": lambda config: nn.LayerNorm(
        config.hidden_size, eps=config.norm_eps, bias=config.biases is True
    ),
}
"""The constructors of modules on (…, width), by the option `norm`. Gains start at 1, and biases at
0."""
NORM_PLACES: Mapping[str, tuple[str, ...]] = {
    "pre": ("input_layernorm", "post_attention_layernorm"),
    "post": ("attention_norm", "feed_forward_norm"),
    "both": ("input_layernorm", "attention_norm", "post_attention_layernorm", "feed_forward_norm"),
}
"""The norms of a layer by the option `norm_place`: of what attention and the feed-forward read,
under Llama's names, and of their results."""


class HeadLayerNorm(nn.Module):
    """Each head gets mean 0 and variance 1, without parameters, as in the text of the paper."""

    def __init__(self, num_heads: int, config: ModelConfig) -> None:
        super().__init__()
        self.sizes, self.eps = (num_heads, config.head_dim), config.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each head of (…, num_heads · head_dim)."""
        heads = x.unflatten(-1, self.sizes)
        return F.layer_norm(heads, self.sizes[1:], eps=self.eps).flatten(-2)


class HeadNorm(nn.Module):
    """The norm of the option `norm` of each head, with one gain for all of them, as in Qwen3."""

    def __init__(self, num_heads: int, config: ModelConfig) -> None:
        super().__init__()
        self.sizes = (num_heads, config.head_dim)
        self.norm = NORMS[config.norm](dataclasses.replace(config, hidden_size=config.head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each head of (…, num_heads · head_dim)."""
        return self.norm(x.unflatten(-1, self.sizes)).flatten(-2)


QK_NORMS: Mapping[str, Callable[[int, ModelConfig], nn.Module]] = {
    "none": lambda num_heads, config: nn.Identity(),
    "layer": HeadLayerNorm,
    # Over all heads together, with a learned gain, as in the released code.
    "rms": lambda num_heads, config: nn.RMSNorm(num_heads * config.head_dim, eps=config.norm_eps),
    "head_rms": HeadNorm,
}
"""The constructors from the number of heads and the sizes to a module, by the option `qk_norm`."""
