"""Qwen3: Qwen2 with norms of queries and keys in place of biases."""

from __future__ import annotations

from typing import Any, ClassVar

from fope_lab.model.config import ModelConfig
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.qwen2 import Qwen2
from fope_lab.model.families.tensors import HEAD_QK_NORM, LLAMA, TensorMap


class Qwen3(Qwen2, name="qwen3", architecture="Qwen3ForCausalLM"):
    """As arXiv 2505.09388, §2."""

    defaults: ClassVar[Json] = {**Qwen2.defaults, "head_dim": 128}
    options: ClassVar[Json] = {"qk_norm": "head_rms"}
    tensors: ClassVar[TensorMap] = LLAMA | HEAD_QK_NORM

    def model(self, f: Fields) -> dict[str, Any]:
        biases = "attention" if f.get("attention_bias") else False
        return super().model(f) | {"biases": biases}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        return super().model_fields(model) | {"attention_bias": model.biases == "attention"}
