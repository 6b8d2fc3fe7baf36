"""Gemma 3, the text model: windowed layers with a base of their own, five to each full one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import Positions
from fope_lab.model.families.fields import Fields, Json
from fope_lab.model.families.gemma2 import Gemma2
from fope_lab.model.families.layers import (
    FULL,
    SLIDING,
    by_kind,
    every,
    layer_types,
    rope_fields_by_kind,
)
from fope_lab.model.families.tensors import HEAD_QK_NORM, TensorMap

TRAINED = 32_768
"""The tokens at which the released models were trained before they were extended."""


class Gemma3(Gemma2, name="gemma3_text", architecture="Gemma3ForCausalLM"):
    """As Gemma 2, with norms of queries and keys in place of caps (arXiv 2503.19786, §2)."""

    defaults: ClassVar[Json] = {
        **Gemma2.defaults,
        "max_position_embeddings": 131_072,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window_pattern": 6,
    }
    options: ClassVar[Json] = {**Gemma2.options, "qk_norm": "head_rms"}
    tensors: ClassVar[TensorMap] = {**Gemma2.tensors, **HEAD_QK_NORM}

    def model(self, f: Fields) -> dict[str, Any]:
        # The class passes this to no attention function but the eager one of another class.
        f.only("attn_logit_softcapping", None)
        return super().model(f)

    def positions(self, f: Fields, model: ModelConfig) -> Positions:
        period = f.whole("sliding_window_pattern")
        if f.get("layer_types") is None:  # the class reads the other name only
            f.only("_sliding_window_pattern", None, period)
        theta = {FULL: f["rope_theta"], SLIDING: f["rope_local_base_freq"]}
        f.get("_sliding_window_pattern")
        return by_kind(f, layer_types(f, every(period, model.num_layers)), theta)

    @classmethod
    def doubts(cls, description: Json) -> Iterator[str]:
        inside = description.get("rope_parameters")
        of_full = inside.get(FULL) if isinstance(inside, Mapping) else None
        kind = of_full.get("rope_type") if isinstance(of_full, Mapping) else None
        scaled = description.get("rope_scaling") or kind not in (None, "default")
        longest = description.get("max_position_embeddings")
        if isinstance(longest, int) and longest > TRAINED and not scaled:
            yield (
                f"max_position_embeddings is {longest:,}, but the full layers are not scaled: the"
                f" released models reach 131,072 tokens from {TRAINED:,} by a factor of 8"
            )

    def position_fields(self, plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
        return rope_fields_by_kind(plans, shape, longest)
