"""OLMo 2: norms after attention and feed-forward, and of queries and keys over all heads."""

from __future__ import annotations

from typing import Any, ClassVar

from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Family
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.tensors import LLAMA, QK_NORM, TensorMap, renamed

POST_NORMS = renamed(
    {
        "layers.*.post_attention_layernorm": "layers.*.attention_norm",
        "layers.*.post_feedforward_layernorm": "layers.*.feed_forward_norm",
    }
)


class Olmo2(Family, name="olmo2", architecture="Olmo2ForCausalLM"):
    """As arXiv 2501.00656, §2."""

    begins = False
    defaults: ClassVar[Json] = {**LLAMA_DEFAULTS, "rms_norm_eps": 1e-5}
    options: ClassVar[Json] = {"norm_place": "post", "qk_norm": "rms"}
    tensors: ClassVar[TensorMap] = (
        {name: held for name, held in LLAMA.items() if not name.endswith("input_layernorm")}
        | POST_NORMS
        | QK_NORM
    )

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("head_dim", None, f.whole("hidden_size") // f.whole("num_attention_heads"))
        biases = "attention" if f.get("attention_bias") else False
        return super().model(f) | {"biases": biases}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        fields = super().model_fields(model) | {"attention_bias": model.biases == "attention"}
        return {name: value for name, value in fields.items() if name != "head_dim"}
