"""A resolved embedding and the preset's name for it are the same embedding."""

from __future__ import annotations

from typing import Any

import pytest

from fope_lab.embeddings import PRESETS, preset_of, resolve_embedding

NEED_FACTOR = {"pi", "ntk", "yarn", "llama3", "resonance-yarn", "fope-yarn"}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("more", [{}, {"base": 129.0}])
def test_every_preset_is_found_again(name: str, more: dict[str, Any]) -> None:
    factor = {"factor": 4.0} if name in NEED_FACTOR else {}
    spec = {"type": name, **factor, **more}
    try:
        resolved = resolve_embedding(spec)
    except ValueError:
        assert more, f"{name} has no base"
        return
    assert preset_of(resolved) == spec


def test_options_are_said_and_other_compositions_stay_as_they_are() -> None:
    assert preset_of(resolve_embedding({"type": "p-rope", "p": 0.25})) == {
        "type": "p-rope",
        "p": 0.25,
    }
    own = {"type": "rotary", "transforms": ["full_cycles", "resonance"]}
    assert preset_of(own) == resolve_embedding(own)
