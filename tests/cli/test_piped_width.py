"""Tables in a pipe: rows are whole, and COLUMNS sets their width, for each table to be searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.cli import main
from fope_lab.store import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.ledger import Ledger

SWEEP = """
name: wide
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {task: passkey, length: 32}
    train: {tokens: 1024, batch_tokens: 256, learning_rate: 1e-2}
  passkey: {kind: passkey, from: pretrain, form: symbolic, trials: 2}
grid:
  passkey.lengths: [LENGTHS]
"""
LENGTHS = list(range(32, 100))
COMMANDS = (["status", "FILE"], ["plan", "FILE"], ["store", "list"])
LABELLED = COMMANDS[1:]
"""Those that show whole labels; `status` has the shortest that tell stages apart."""


class Scene:
    """A sweep with a label of more than 200 characters, which the store has."""

    def __init__(self, folder: Path) -> None:
        self.file, self.store = folder / "wide.yaml", Store.create(folder / "store")
        self.file.write_text(SWEEP.replace("LENGTHS", str(LENGTHS)))
        sweep = load_sweep(self.file)
        Ledger(self.store, "none").save_outline(plan(sweep, self.store))
        self.label = sweep.stages[-1].label
        for stage in sweep.stages:
            with self.store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
                attempt.finish({})

    def run(self, words: list[str]) -> int:
        file = [str(self.file) if word == "FILE" else word for word in words]
        return main([*file, "--store", str(self.store.root)])


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
