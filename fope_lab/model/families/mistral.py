"""Mistral: Llama's block, and in early releases a window in all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Family, Positions, rotation, uniform
from fope_lab.model.families.fields import Fields, Json


class Mistral(Family, name="mistral", architecture="MistralForCausalLM"):
    """As Llama, but for the window. Its class does not read `layer_types`."""

    defaults: ClassVar[Json] = {
        **LLAMA_DEFAULTS,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    }

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        window = None if f.get("sliding_window") is None else f.whole("sliding_window")
        kind = "full_attention" if window is None else "sliding_attention"
        f.only("layer_types", None, [kind] * model.num_layers)
        return uniform(*rotation(f, f.rope()), layers=model.num_layers, window=window)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        fields: dict[str, Any] = {"sliding_window": plans[0].window}
        return {**super().position_fields(plans, shape, longest), **fields}
