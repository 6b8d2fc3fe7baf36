"""The name of a composition: the preset, with its options, that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.spec import TRANSFORMS, resolve_embedding


def preset_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved embedding in the words of a preset: {type: fope, base: 129}.

    Of several presets the one that leaves the fewest options to be said; the embedding as it is if
    none has its parts.
    """
    resolved = resolve_embedding(spec)
    found = []
    for name, preset in PRESETS.items():
        if preset.composition["type"] != resolved["type"]:
            continue
        options = _options(resolved, preset.composition)
        if options is not None:
            candidate = {"type": name, **options}
            if resolve_embedding(candidate) == resolved:
                found.append(candidate)
    return min(found, key=len, default=dict(resolved))


def _options(resolved: Mapping[str, Any], composition: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options beside a composition's own; None if it has other transforms."""
    own, theirs = (
        [{"type": one} if isinstance(one, str) else one for one in spec.get(TRANSFORMS, ())]
        for spec in (resolved, composition)
    )
    if [one["type"] for one in own] != [one["type"] for one in theirs]:
        return None
    pairs = [*zip(own, theirs, strict=True), (resolved, composition)]
    return {
        option: value
        for part, fixed in pairs
        for option, value in part.items()
        if option not in ("type", TRANSFORMS) and fixed.get(option) != value
    }
