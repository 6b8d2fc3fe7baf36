"""OLMo 3: OLMo 2 with windows in three of four layers; only the full layers are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.layers import (
    FULL,
    SLIDING,
    by_kind,
    every,
    layer_types,
    rope_fields_by_kind,
)
from fope_lab.model.families.olmo2 import Olmo2

THETA = 500_000.0


class Olmo3(Olmo2, name="olmo3", architecture="Olmo3ForCausalLM"):
    """As released."""

    defaults: ClassVar[Json] = {**Olmo2.defaults, "sliding_window": 4096}

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        # Version 4 of transformers rotates windowed layers by this base too, version 5 does not.
        f.only("rope_theta", None, THETA)
        kinds = layer_types(f, every(4, model.num_layers))
        return by_kind(f, kinds, {FULL: THETA, SLIDING: THETA})

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        return rope_fields_by_kind(plans, shape, longest)
