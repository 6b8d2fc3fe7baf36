"""Hugging Face's rope parameters, in both of its spellings, and our frequency transforms for them.

Torch-free. The formulas are those of transformers 5 (modeling_rope_utils.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]


def rope_parameters(fields: Json) -> dict[str, Any]:
    """The rope parameters of a config.json, in whichever spelling.

    Transformers 5 has all of them in `rope_parameters`; earlier ones had `rope_theta` beside
    `rope_scaling`, which wins where both are.
    """
    outside = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
    beside = {name: fields[name] for name in outside if name in fields}
    given = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    rope = {"rope_theta": 10_000.0, **beside, **given}
    if "original_max_position_embeddings" in beside:  # as in transformers, this one wins
        rope["original_max_position_embeddings"] = beside["original_max_position_embeddings"]
    return rope


Scaling = Callable[[Json, int], tuple[dict[str, Any] | None, int]]
"""From rope parameters and `max_position_embeddings` to a frequency transform, if there is one,
and the original length."""


def _default(rope: Json, longest: int) -> tuple[dict[str, Any] | None, int]:
    return None, longest


def _linear(rope: Json, longest: int) -> tuple[dict[str, Any] | None, int]:
    factor = float(rope["factor"])
    return ({"type": "interpolate", "factor": factor} if factor != 1 else None), longest


def _dynamic(rope: Json, longest: int) -> tuple[dict[str, Any] | None, int]:
    return {"type": "dynamic_ntk", "growth": float(rope["factor"])}, longest


def _yarn(rope: Json, longest: int) -> tuple[dict[str, Any] | None, int]:
    original = rope.get("original_max_position_embeddings") or longest
    factor = float(rope.get("factor") or longest / original)
    scale = rope.get("attention_factor")
    ratio = rope.get("mscale"), rope.get("mscale_all_dim")
    if scale is None and all(ratio):
        above, below = (_yarn_scale(factor, float(gain)) for gain in ratio if gain)
        scale = above / below
    if factor == 1 and scale in (None, 1):
        return None, original
    yarn = {
        "type": "yarn",
        "factor": factor,
        "alpha": float(rope.get("beta_slow") or 1),
        "beta": float(rope.get("beta_fast") or 32),
        "truncate": rope.get("truncate", True),
        "attention_factor": None if scale is None else float(scale),
    }
    return yarn, original


def _yarn_scale(factor: float, gain: float) -> float:
    """DeepSeek's generalisation of YaRN's attention factor, 0.1·gain·ln s + 1."""
    return 0.1 * gain * math.log(factor) + 1.0 if factor > 1 else 1.0


def _llama3(rope: Json, longest: int) -> tuple[dict[str, Any] | None, int]:
    """By the wavelength λ, in L/λ = `low_freq_factor` … `high_freq_factor` cycles: YaRN's own ramp,
    without an attention factor."""
    original = rope.get("original_max_position_embeddings") or longest
    factor = float(rope["factor"])
    if factor == 1:
        return None, original
    llama3 = {
        "type": "yarn",
        "ramp": "cycles",
        "factor": factor,
        "alpha": float(rope["low_freq_factor"]),
        "beta": float(rope["high_freq_factor"]),
        "attention_factor": 1.0,
    }
    return llama3, original


SCALINGS: Mapping[str, Scaling] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
}
"""By `rope_type`."""
