"""The block of GPT-2, as sizes of a ModelConfig."""

from __future__ import annotations

from typing import Any

GPT2: dict[str, Any] = {
    "norm": "layer",
    "biases": True,
    "feed_forward": "gelu_tanh",
    "tie_embeddings": True,
}
