"""The commands that look after a store import nothing heavy, so that they answer at once."""

from __future__ import annotations

from pathlib import Path

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
        ["stop", "FILE"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(scene: Scene, words: list[str]) -> None:
    scene.save(ROPE, finish=True)
    words = [str(scene.file) if word == "FILE" else word for word in words]
    call = f"assert main({[*words, *scene.options]!r}) == 0"
    assert heavy_modules(f"from fope_lab.cli import main; {call}") == []


def test_a_new_sweep_is_written_at_once(tmp_path: Path) -> None:
    call = f"assert main(['new', {str(tmp_path / 'mine.yaml')!r}]) == 0"
    assert heavy_modules(f"from fope_lab.cli import main; {call}") == []
