"""GPT-NeoX and Pythia: LayerNorm, biases, a parallel feed-forward, and a partial rotation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Family, Positions, rotation, uniform
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.tensors import ByHead, TensorMap, renamed, same

QKV = ByHead(tuple(f"layers.*.self_attn.{name}_proj" for name in "qkv"))


class GptNeoX(Family, name="gpt_neox", architecture="GPTNeoXForCausalLM"):
    """Black et al., arXiv 2204.06745, §2.1. Only the first `rotary_pct` of a head rotates."""

    prefix = "gpt_neox."
    begins = False
    defaults: ClassVar[Json] = {
        "hidden_act": "gelu",
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "use_parallel_residual": True,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10_000.0,
    }
    norm_eps = "layer_norm_eps"
    activations: ClassVar[Mapping[str, str]] = {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
    }
    dropouts = ("hidden_dropout", "attention_dropout")
    options: ClassVar[Json] = {"norm": "layer", "biases": True}
    tensors: ClassVar[TensorMap] = {
        **renamed({"embed_in": "embed_tokens", "final_layer_norm": "norm"}),
        **renamed({"embed_out": "lm_head", "lm_head": "lm_head"}),
        **same("layers.*.input_layernorm", "layers.*.post_attention_layernorm"),
        "layers.*.attention.query_key_value": QKV,
        **renamed(
            {
                "layers.*.attention.dense": "layers.*.self_attn.o_proj",
                "layers.*.mlp.dense_h_to_4h": "layers.*.mlp.up_proj",
                "layers.*.mlp.dense_4h_to_h": "layers.*.mlp.down_proj",
            }
        ),
    }
    dropped = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("attention_bias", True, None)
        heads = f.whole("num_attention_heads")
        f.only("num_key_value_heads", None, heads)
        f.only("head_dim", None, f.whole("hidden_size") // heads)
        return super().model(f) | {"parallel": f.flag("use_parallel_residual")}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        fields = super().model_fields(model) | {"use_parallel_residual": model.parallel}
        return {n: v for n, v in fields.items() if n not in ("num_key_value_heads", "head_dim")}

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        f.only("rope_theta", None, f["rotary_emb_base"])  # the class does not read it
        names = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
        return uniform(*rotation(f, f.rope(**names), partial=True), layers=model.num_layers)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        fields = dict(super().position_fields(plans, shape, longest))
        rope = fields["rope_parameters"]
        rope.setdefault("partial_rotary_factor", 1.0)
        own = {"rotary_pct": rope["partial_rotary_factor"], "rotary_emb_base": rope["rope_theta"]}
        return {**fields, **own}
