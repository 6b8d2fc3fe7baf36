"""The commands that look after a store import nothing heavy, so that they answer at once."""

from __future__ import annotations

import pytest
from heavy_imports import heavy_modules
from kept_sweep import ROPE, Scene


@pytest.mark.parametrize(
    "words",
    [
        ["logs", ROPE],
        ["store", "list"],
        ["store", "show", ROPE],
        ["store", "prune"],
        ["store", "verify"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(scene: Scene, words: list[str]) -> None:
    scene.save(ROPE, finish=True)
    call = f"assert main({[*words, *scene.options]!r}) == 0"
    assert heavy_modules(f"from fope_lab.cli import main; {call}") == []
