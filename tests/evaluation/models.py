"""What models of tests have in common: the two parts that evaluations call."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


class Logits(nn.Module):
    """A model whose `hidden` are logits already."""

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


class Halves(nn.Module):
    """A model of transformers in its two parts."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model, self.head = model.model, model.lm_head

    def hidden(self, ids: Tensor) -> Tensor:
        return self.model(ids).last_hidden_state


def llama(vocabulary: int) -> LlamaForCausalLM:
    """A small one whose probabilities are far from uniform."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()
