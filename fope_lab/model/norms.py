"""The norms of a decoder layer, and of the last hidden states."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

from fope_lab.model.config import ModelConfig

NORMS: Mapping[str, Callable[[ModelConfig], nn.Module]] = {
    "rms": lambda config: nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
    "layer": lambda config: nn.LayerNorm(
        config.hidden_size, eps=config.norm_eps, bias=config.biases
    ),
}
"""The constructors of modules on (…, width), by the option `norm`. Gains start at 1, and biases at
0."""
