"""Llama and what has its class: SmolLM, Vicuna, DeepSeek-coder and many more."""

from __future__ import annotations

from typing import Any

from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Family, Positions
from fope_lab.model.families.fields import Fields


class Llama(Family, name="llama", architecture="LlamaForCausalLM"):
    """Pre-norm by RMSNorm, gated feed-forward, one rotation of all layers."""

    def model(self, f: Fields) -> dict[str, Any]:
        of_attention, of_mlp = bool(f.get("attention_bias")), bool(f.get("mlp_bias"))
        if of_mlp and not of_attention:
            f.refuse("mlp_bias", True, False, "true with attention_bias: true")
        return super().model(f) | {"biases": of_mlp or ("attention" if of_attention else False)}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        of_attention = model.biases in (True, "attention")
        own = {"attention_bias": of_attention, "mlp_bias": model.biases is True}
        return super().model_fields(model) | own

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        f.only("sliding_window", None)
        f.only("layer_types", None, ["full_attention"] * model.num_layers)
        return super().positions(f, model)
