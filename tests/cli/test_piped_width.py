"""Tables in a pipe: rows are whole, and COLUMNS sets their width, for each table to be searched."""

from __future__ import annotations

from pathlib import Path

import kept_sweep
import pytest

from fope_lab.cli import main

SWEEP = kept_sweep.SWEEP.partition("grid:")[0].replace(", lengths: [32]", "")
LENGTHS = list(range(32, 100))
COMMANDS = (["status", "FILE"], ["plan", "FILE"], ["store", "list"])
LABELLED = COMMANDS[1:]
"""Those that show whole labels; `status` has the shortest that tell stages apart."""


class Scene(kept_sweep.Scene):
    """A sweep with a label of more than 200 characters, which the store has."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write(f"{SWEEP}grid: {{passkey.lengths: [{LENGTHS}]}}\n")
        self.record()
        self.label = self.sweep.stages[-1].label
        for stage in self.sweep.stages:
            with self.folder(stage.label).begin("test", {}) as attempt:
                attempt.finish({})

    def run(self, words: list[str]) -> int:
        file = [str(self.file) if word == "FILE" else word for word in words]
        return main([*file, *self.options])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("words", LABELLED, ids=lambda words: words[-2])
@pytest.mark.parametrize("columns", [None, "", "wide", "-1", "0"])
def test_a_row_is_whole_in_a_pipe(
    words: list[str],
    columns: str | None,
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert len(scene.label) > 200
    assert scene.run(words) == 0
    assert sum(scene.label in line for line in capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("words", LABELLED, ids=lambda words: words[-2])
def test_columns_sets_the_width_of_a_piped_table(
    words: list[str],
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert scene.run(words) == 0
    output = capsys.readouterr().out
    assert scene.label not in output
    [row] = [line for line in output.splitlines() if "passkey[" in line]
    assert 100 < len(row) <= 110
