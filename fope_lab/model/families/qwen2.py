"""Qwen2 and Qwen2.5: Llama's block with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Family, Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.layers import FULL, SLIDING, alike, kind_fields, layer_types


class Qwen2(Family, name="qwen2", architecture="Qwen2ForCausalLM"):
    """Windows, where `use_sliding_window` is true, are those of the layers from
    `max_window_layers` on."""

    begins = False
    defaults: ClassVar[Json] = {
        **LLAMA_DEFAULTS,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }
    options: ClassVar[Json] = {"biases": "qkv"}

    def model(self, f: Fields) -> dict[str, Any]:
        f.only("use_mrope", False, None)
        return super().model(f)

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        windowed, full = f.flag("use_sliding_window"), f["max_window_layers"]
        own = windowed and f.get("sliding_window") is not None
        numbers = range(model.num_layers)
        kinds = layer_types(f, [SLIDING if own and n >= full else FULL for n in numbers])
        if SLIDING in kinds and not own:
            f.refuse("layer_types", SLIDING, f"{FULL}, as there is no window")
        return alike(f, kinds)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        windowed = any(plan.window is not None for plan in plans)
        fields = {**super().position_fields(plans, shape, longest), **kind_fields(plans)}
        return {**fields, "use_sliding_window": windowed}
