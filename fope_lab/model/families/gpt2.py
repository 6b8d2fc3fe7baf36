"""GPT-2: learned positions, LayerNorm, biases, and matrices of inputs by outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import EmbeddingError, LayerPlan, Shape
from fope_lab.embeddings.learned import Learned
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Family, Layer, Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.tensors import Fused, Same, TensorMap, renamed, transposed

QKV = Fused(tuple(f"layers.*.self_attn.{name}_proj" for name in "qkv"))


class Gpt2(Family, name="gpt2", architecture="GPT2LMHeadModel"):
    """Radford et al. (2019). The dropouts are one of ours, and only if they are equal."""

    prefix = "transformer."
    sizes: ClassVar[Mapping[str, str]] = {
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "hidden_size": "n_embd",
        "vocab_size": "vocab_size",
    }
    begins = False
    defaults: ClassVar[Json] = {
        "n_positions": 1024,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
    }
    activation = "activation_function"
    activations: ClassVar[Mapping[str, str]] = {
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu": "gelu",
        "relu": "relu",
    }
    dropouts = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    norm_eps = "layer_norm_epsilon"
    options: ClassVar[Json] = {"norm": "layer", "biases": True}
    tensors: ClassVar[TensorMap] = {
        **renamed({"wte": "embed_tokens", "ln_f": "norm", "lm_head": "lm_head"}),
        "wpe.weight": Same(("position_embeddings.0.by_position",)),
        **renamed({"h.*.ln_1": "layers.*.input_layernorm"}),
        **renamed({"h.*.ln_2": "layers.*.post_attention_layernorm"}),
        "h.*.attn.c_attn": transposed(QKV),
        "h.*.attn.c_proj": transposed(Same(("layers.*.self_attn.o_proj",))),
        "h.*.mlp.c_fc": transposed(Same(("layers.*.mlp.up_proj",))),
        "h.*.mlp.c_proj": transposed(Same(("layers.*.mlp.down_proj",))),
    }
    dropped = (".attn.bias", ".attn.masked_bias")
    inert = frozenset({"n_ctx", *(f"summary_{n}" for n in (
        "type", "use_proj", "activation", "proj_to_labels", "first_dropout"))})  # fmt: skip

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("scale_attn_weights", True, None)
        for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
            f.only(name, False, None)
        f.only("reorder_and_upcast_attn", False, None)
        heads, width = f.whole("n_head"), f.whole("n_embd")
        f.only("num_key_value_heads", None, heads)
        f.only("head_dim", None, width // heads)
        return super().model(f) | {"intermediate_size": f.whole("n_inner", 4 * width)}

    def model_fields(self, model: ModelConfig) -> dict[str, Any]:
        fields = super().model_fields(model) | {"n_inner": model.intermediate_size}
        return {n: v for n, v in fields.items() if n not in ("num_key_value_heads", "head_dim")}

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        length = f.whole("n_positions")
        return Positions([Layer({"type": Learned.name})] * model.num_layers, length, length)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        embedding = plans[0].embedding
        if not isinstance(embedding, Learned):
            fault = f"embedding: found {embedding.name} (allowed: {Learned.name})"
            raise EmbeddingError(fault)
        return {"n_positions": embedding.longest_sequence(shape)}
