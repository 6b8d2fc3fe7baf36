"""SmolLM3: Llama's block, with three layers that rotate to each one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.embeddings.nope import Nope
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import LLAMA_DEFAULTS, Layer, Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.layers import FULL, SLIDING, alike, kind_fields, layer_types
from fope_lab.model.families.llama import Llama


class SmolLM3(Llama, name="smollm3", architecture="SmolLM3ForCausalLM"):
    """Layers that do not rotate may have a window."""

    begins = False
    inert = frozenset({"max_window_layers"})
    defaults: ClassVar[Json] = {
        **LLAMA_DEFAULTS,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "rope_theta": 2_000_000.0,
        "use_sliding_window": False,
        "no_rope_layer_interval": 4,
    }

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        count, period = model.num_layers, f.whole("no_rope_layer_interval")
        rotates = f.get("no_rope_layers")
        if rotates is None:
            rotates = [(number + 1) % period != 0 for number in range(count)]
        if (
            not isinstance(rotates, list)
            or len(rotates) < count
            or any(each not in (0, 1) for each in rotates)
        ):
            f.refuse("no_rope_layers", rotates, f"0 or 1 for each of the {count} layers")
            rotates = [True] * count
        windowed = f.flag("use_sliding_window") and f.get("sliding_window") is not None
        kinds = layer_types(f, [SLIDING if windowed and not r else FULL for r in rotates[:count]])
        if SLIDING in kinds and not windowed:
            f.refuse("layer_types", SLIDING, f"{FULL}, as there is no window")
        layers, original, longest = alike(f, kinds)
        own = [
            layer if rotated else Layer({"type": Nope.name}, layer.window)
            for layer, rotated in zip(layers, rotates, strict=False)
        ]
        return Positions(own, original, longest)

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        rotates = [not isinstance(plan.embedding, Nope) for plan in plans]
        rotating = [plan for plan, rotated in zip(plans, rotates, strict=True) if rotated]
        fields: dict[str, Any] = {
            "no_rope_layers": [int(each) for each in rotates],
            "use_sliding_window": any(plan.window is not None for plan in plans),
        }
        rope = super().position_fields(rotating or plans, shape, longest)
        return {**rope, **kind_fields(plans), **fields}
