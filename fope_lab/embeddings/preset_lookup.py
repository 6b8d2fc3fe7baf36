"""The preset, with its options, that a composition equals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.registry import TRANSFORMS
from fope_lab.embeddings.spec import Spec, resolve_embedding


def preset_of(spec: Spec) -> dict[str, Any]:
    """An embedding as a preset with options, such as {type: fope, base: 129}.

    If several presets fit, the one that needs the fewest options is chosen; if none does, the
    result is its composition. Raises EmbeddingError for a wrong description.
    """
    resolved = resolve_embedding(spec)
    candidates = []
    for name, preset in PRESETS.items():
        if preset.composition["type"] != resolved["type"]:
            continue
        options = _options(resolved, preset.composition)
        if options is not None:
            candidate = {"type": name, **options}
            if resolve_embedding(candidate) == resolved:
                candidates.append(candidate)
    return min(candidates, key=len, default=dict(resolved))


def _options(resolved: Mapping[str, Any], composition: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options that differ from a preset's composition; None if the transforms differ."""
    own, theirs = (
        [{"type": part} if isinstance(part, str) else part for part in spec.get(TRANSFORMS, ())]
        for spec in (resolved, composition)
    )
    if [part["type"] for part in own] != [part["type"] for part in theirs]:
        return None
    pairs = [*zip(own, theirs, strict=True), (resolved, composition)]
    return {
        option: value
        for part, fixed in pairs
        for option, value in part.items()
        if option not in ("type", TRANSFORMS) and fixed.get(option) != value
    }
