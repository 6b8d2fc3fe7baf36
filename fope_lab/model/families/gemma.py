"""Gemma: geglu, scaled token embeddings, and gains of 1 + weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Family
from fope_lab.model.families.fields import Fields, Json


class Gemma(Family, name="gemma", architecture="GemmaForCausalLM"):
    """The first Gemma."""

    begins = True
    defaults: ClassVar[Json] = {
        **LLAMA_DEFAULTS,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
    # The first releases say gelu and mean the tanh approximation; so does transformers.
    activations: ClassVar[Mapping[str, str]] = {"gelu_pytorch_tanh": "geglu", "gelu": "geglu"}
    options: ClassVar[Json] = {"norm": "shifted_rms", "scale_embeddings": True}

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("use_bidirectional_attention", False, None)
        biases = "attention" if f.get("attention_bias") else False
        return super().model(f) | {"biases": biases}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        return super().model_fields(model) | {"attention_bias": model.biases == "attention"}
