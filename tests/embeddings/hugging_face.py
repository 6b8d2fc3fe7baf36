"""Hugging Face's configurations and frequencies, the reference for the scalings it has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def llama_config(head_dim: int, length: int, **rope_parameters: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=length,
        rope_parameters=rope_parameters,
    )


def rope_init(
    rope_type: str, head_dim: int, length: int, *, seq_len: int | None = None, **parameters: Any
) -> tuple[Tensor, float]:
    """Inverse frequencies and attention factor as Hugging Face computes them."""
    config = llama_config(head_dim, length, rope_type=rope_type, **parameters)
    return ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"), seq_len=seq_len)
