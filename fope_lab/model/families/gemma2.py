"""Gemma 2: norms before and after, capped logits, and a window in every other layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.gemma import Gemma
from fope_lab.model.families.layers import alike, every, kind_fields, layer_types
from fope_lab.model.families.tensors import LLAMA, TensorMap, renamed

BOTH_NORMS = renamed(
    {
        "layers.*.post_attention_layernorm": "layers.*.attention_norm",
        "layers.*.pre_feedforward_layernorm": "layers.*.post_attention_layernorm",
        "layers.*.post_feedforward_layernorm": "layers.*.feed_forward_norm",
    }
)


class Gemma2(Gemma, name="gemma2", architecture="Gemma2ForCausalLM"):
    """As Gemma, with what the technical report names (arXiv 2408.00118, §2)."""

    defaults: ClassVar[Json] = {
        **Gemma.defaults,
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
    activation = "hidden_activation"
    activations: ClassVar[Mapping[str, str]] = {"gelu_pytorch_tanh": "geglu", "silu": "swiglu"}
    options: ClassVar[Json] = {**Gemma.options, "norm_place": "both"}
    tensors: ClassVar[TensorMap] = LLAMA | BOTH_NORMS
    inert = frozenset({"hidden_act", "sliding_window_size"})

    def model(self, f: Fields) -> dict[str, Any]:
        return super().model(f) | {
            "attention_cap": f.number("attn_logit_softcapping", optional=True),
            "logit_cap": f.number("final_logit_softcapping", optional=True),
            "score_size": f.number("query_pre_attn_scalar"),
        }

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        size = model.score_size or model.head_dim
        return super().model_fields(model) | {
            "attn_logit_softcapping": model.attention_cap,
            "final_logit_softcapping": model.logit_cap,
            "query_pre_attn_scalar": int(size) if size == int(size) else size,
        }

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        return alike(f, layer_types(f, every(2, model.num_layers)))

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        return {**super().position_fields(plans, shape, longest), **kind_fields(plans)}
