"""Low-rank adapters in a decoder (adapter.py), under the names of tensors that PEFT gives them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.model.adapter import Adapter
from fope_lab.model.decoder import Decoder
from fope_lab.model.layers import UninitializedLinear

DOWN, UP = "lora_A", "lora_B"


class AdaptedLinear(UninitializedLinear):
    """A projection with an adapter: x·Wᵀ + b + scale·(x·Aᵀ)·Bᵀ."""

    def __init__(self, of: nn.Linear, adapter: Adapter) -> None:
        with torch.device("meta"):
            super().__init__(of.in_features, of.out_features, bias=of.bias is not None)
        self.weight, self.bias, self.adapter = of.weight, of.bias, adapter
        rank, device = adapter.rank, of.weight.device
        self.lora_A = UninitializedLinear(of.in_features, rank, bias=False, device=device)
        self.lora_B = UninitializedLinear(rank, of.out_features, bias=False, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, inputs) to (…, outputs)."""
        change = self.lora_B(self.lora_A(x))
        return F.linear(x, self.weight, self.bias) + self.adapter.scale * change


def add_adapter(model: Decoder, adapter: Adapter, seed: int) -> None:
    """Give the projections their adapters, and let nothing else learn but position embeddings.

    A is drawn uniformly from ±1/√inputs as PEFT draws it, from `seed`, and B is 0, so that the
    model stays as it is at first.
    """
    model.requires_grad_(False)
    for module in (model.position_embeddings, model.query_scales):
        module.requires_grad_(True)
    generator = None
    for layer in model.layers:
        for block in (layer.self_attn, layer.mlp):
            assert isinstance(block, nn.Module)
            for name in adapter.targets:
                linear = getattr(block, name, None)
                if not isinstance(linear, nn.Linear):
                    continue
                adapted = AdaptedLinear(linear, adapter)
                setattr(block, name, adapted)
                if adapted.lora_A.weight.is_meta:  # a checkpoint has the tensors
                    continue
                if generator is None:
                    generator = torch.Generator(linear.weight.device).manual_seed(seed)
                bound = 1 / math.sqrt(linear.in_features)
                with torch.no_grad():
                    adapted.lora_A.weight.uniform_(-bound, bound, generator=generator)
                    adapted.lora_B.weight.zero_()


def adapter_of(model: nn.Module) -> Adapter | None:
    """What `add_adapter` gave a model and `merge_adapter` did not take."""
    return next((m.adapter for m in model.modules() if isinstance(m, AdaptedLinear)), None)


@torch.no_grad()
def merge_adapter(model: Decoder) -> None:
    """Add the adapters to the weights and drop them, so that the model is a plain one again, all of
    which can learn. Without adapters nothing happens."""
    if adapter_of(model) is None:
        return
    for block in model.modules():
        for name, linear in list(block.named_children()):
            if isinstance(linear, AdaptedLinear):
                plain = UninitializedLinear(
                    linear.in_features,
                    linear.out_features,
                    bias=linear.bias is not None,
                    device="meta",
                )
                change = linear.lora_B.weight.double() @ linear.lora_A.weight.double()
                merged = linear.weight.double() + linear.adapter.scale * change
                plain.weight = nn.Parameter(merged.to(linear.weight.dtype))
                plain.bias = linear.bias
                setattr(block, name, plain)
    model.requires_grad_(True)
