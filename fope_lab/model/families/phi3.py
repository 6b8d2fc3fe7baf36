"""Phi-3, Phi-3.5 and Phi-4: fused projections, LongRoPE, heads of which a part may not rotate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Family, Positions, rotation, uniform
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.tensors import LLAMA, Fused, TensorMap

ATTENTION, MLP = "layers.*.self_attn", "layers.*.mlp"
FUSED = {
    f"{ATTENTION}.qkv_proj": Fused(tuple(f"{ATTENTION}.{name}_proj" for name in "qkv")),
    f"{MLP}.gate_up_proj": Fused((f"{MLP}.gate_proj", f"{MLP}.up_proj")),
}
INSIDE = {name for held in FUSED.values() for name in held.ours}


class Phi3(Family, name="phi3", architecture="Phi3ForCausalLM"):
    """As released; the dropouts are one of ours, and only if they are equal."""

    defaults: ClassVar[Json] = {
        **LLAMA_DEFAULTS,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attention_dropout": 0.0,
    }
    dropouts = ("resid_pdrop", "embd_pdrop", "attention_dropout")
    inert = frozenset({"full_attn_mod", "interpolate_factor"})
    tensors: ClassVar[TensorMap] = {
        **{name: held for name, held in LLAMA.items() if name not in INSIDE},
        **FUSED,
    }

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("attention_bias", False, None)
        f.only("layer_types", None, ["full_attention"] * f.whole("num_hidden_layers"))
        return super().model(f)

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        rope = f.rope()
        if rope.rope_type in ("su", "yarn"):  # earlier names
            rope = rope.updated(rope_type="longrope")
        if rope.rope_type not in ("default", "longrope"):
            f.refuse("rope_type", rope.rope_type, "default", "longrope")
        window = None if f.get("sliding_window") is None else f.whole("sliding_window")
        own = rotation(f, rope, partial=True)
        return uniform(*own, layers=model.num_layers, window=window)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        fields = dict(super().position_fields(plans, shape, longest))
        given = fields["rope_parameters"].get("original_max_position_embeddings")
        fields["original_max_position_embeddings"] = given or shape.train_length
        return {**fields, "sliding_window": plans[0].window}
