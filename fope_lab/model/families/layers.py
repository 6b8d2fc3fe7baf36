"""Layers of two kinds, with a window and without, as several families have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fope_lab.embeddings.base import LayerPlan, Shape
from fope_lab.embeddings.frequencies import HfRope
from fope_lab.model.families.base import Layer, Positions, rotation
from fope_lab.model.families.fields import Fields, Json

FULL, SLIDING = "full_attention", "sliding_attention"
"""The kinds in `layer_types`."""


def layer_types(f: Fields, default: Sequence[str]) -> Sequence[str]:
    """The kind of each layer, by default those of the class."""
    kinds = f.get("layer_types")
    if kinds is None:
        return default
    if not isinstance(kinds, list):
        f.refuse("layer_types", kinds, f"a list of {FULL} and {SLIDING}")
        return default
    wrong = [kind for kind in kinds if kind not in (FULL, SLIDING)]
    if wrong or len(kinds) != len(default):
        found = wrong[0] if wrong else f"{len(kinds)} of them"
        f.refuse("layer_types", found, FULL, SLIDING, f"{len(default)} of them")
        return default
    return list(kinds)


def every(period: int, layers: int) -> list[str]:
    """Each `period`th layer is full."""
    return [FULL if (number + 1) % period == 0 else SLIDING for number in range(layers)]


def windows(f: Fields, kinds: Sequence[str]) -> list[int | None]:
    """The window of each layer."""
    window = f.get("sliding_window")
    if SLIDING in kinds:
        window = f.whole("sliding_window")
    return [window if kind == SLIDING else None for kind in kinds]


def alike(f: Fields, kinds: Sequence[str]) -> Positions:
    """One rotation of all layers, some of which have a window."""
    composition, original, longest = rotation(f, f.rope())
    layers = [Layer(composition, window) for window in windows(f, kinds)]
    return Positions(layers, original, longest)


def by_kind(f: Fields, kinds: Sequence[str], theta: Mapping[str, float]) -> Positions:
    """A rotation for each kind of layer; a scaling of earlier versions is that of full layers.
    `theta` are the bases where a file has none."""
    inside = f.get("rope_parameters") or {}
    if inside and not {FULL, SLIDING} & inside.keys():
        f.refuse("rope_parameters", "one set", f"a set for {FULL} and one for {SLIDING}")
    scaling = {FULL: f.get("rope_scaling") or {}}
    longest = f.whole("max_position_embeddings")
    compositions, originals = {}, {}
    for kind in (FULL, SLIDING):
        own = {"rope_theta": theta[kind], **(inside.get(kind) or {}), **scaling.get(kind, {})}
        rope = HfRope(parameters=own, max_length=longest)
        compositions[kind], originals[kind], longest = rotation(f, rope)
    if compositions[SLIDING].get("transforms") and originals[SLIDING] != originals[FULL]:
        f.refuse("rope_parameters", f"two original lengths {sorted(originals.values())}", "one")
    layers = [
        Layer(compositions[kind], window)
        for kind, window in zip(kinds, windows(f, kinds), strict=True)
    ]
    return Positions(layers, originals[FULL], longest)


def kind_fields(plans: Sequence[LayerPlan]) -> dict[str, Any]:
    """The fields that `layer_types` and `windows` read."""
    sizes = [plan.window for plan in plans if plan.window is not None]
    fields: dict[str, Any] = {"layer_types": [kind_of(plan) for plan in plans]}
    return fields | ({"sliding_window": sizes[0]} if sizes else {})


def rope_fields_by_kind(plans: Sequence[LayerPlan], shape: Shape, longest: int) -> Json:
    """The fields that `by_kind` reads. Raises EmbeddingError for what is no rotation."""
    ropes = {kind_of(plan): plan.embedding.to_hf(shape, longest) for plan in reversed(plans)}
    longest = ropes[FULL].max_length if FULL in ropes else longest
    parameters = {kind: dict(rope.parameters) for kind, rope in ropes.items()}
    return {**kind_fields(plans), "max_position_embeddings": longest, "rope_parameters": parameters}


def kind_of(plan: LayerPlan) -> str:
    return FULL if plan.window is None else SLIDING
