"""Seeds added by claims, and a driver killed meanwhile: the next run decides as it would have."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from conftest import Run  # type: ignore[attr-defined]

from fope_lab.cli import main
from fope_lab.store.root import Store
from fope_lab.sweep import Sweep, load_sweep

pytestmark = pytest.mark.faults

SEED_SWEEP = """
name: seeds
seeds: {first: 3, at_most: 5, until: claims}
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 1, head_dim: 16, intermediate_size: 32}
    data: {corpus: python-docs, length: 32}
    train: {tokens: 3200, batch_tokens: 320, learning_rate: 1e-7}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32], tokens: 320}
grid: {pretrain.embedding: [rope, nope], pretrain.train.learning_rate: [1e-7, 3e-2]}
exclude: [{pretrain.embedding: nope, pretrain.train.learning_rate: 3e-2}]
report:
  claims:
    - "perplexity@32 where embedding=rope: 1e-7 > 3e-2"
    - "perplexity@32 where learning_rate=1e-7: rope ~ nope within 0.0000001%"
"""
"""The models that learn nothing are far from the one that learns. Among themselves they are
neither equal within so little nor different."""
SEEDS = {
    ("rope", 1e-7): [0, 1, 2, 3, 4],
    ("nope", 1e-7): [0, 1, 2, 3, 4],
    ("rope", 3e-2): [0, 1, 2],
}
"""The seeds that the claims have trained, by embedding and learning rate."""


def trained_seeds(sweep: Sweep, store: Store) -> dict[tuple[str | None, float], list[int | None]]:
    """The seeds of the trainings that were begun, by embedding and learning rate."""
    found: dict[tuple[str | None, float], list[int | None]] = {}
    for stage in sweep.by_section["pretrain"]:
        if store.folder(stage.kind, stage.key).attempts.newest() is not None:
            place = stage.embedding, stage.axes["pretrain.train.learning_rate"]
            found.setdefault(place, []).append(stage.seed)
    return found


def test_seeds_are_added_although_the_driver_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a seed trains that a claim has added."""
    run = Run(tmp_path, SEED_SWEEP)
    sweep = load_sweep(run.sweep)

    def read(command: str, *options: str) -> str:
        assert main([command, str(run.sweep), "--store", str(run.store), *options]) == 0
        return capsys.readouterr().out

    before = json.loads(read("plan", "--json"))["totals"]
    assert before["run"] == before["least"]["stages"]
    assert before["least"]["tokens"] * 5 == before["tokens"] * 3
    assert "of work, 20 to 32 stages" in read("plan")
    driver = run.start()
    run.wait(lambda: [0, 1, 2, 3] in trained_seeds(sweep, run.store).values())
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    finished = [stage for stage in run.stages if run.folder(stage).is_done()]
    tokens = run.attempts()
    assert 0 < len(finished) < 28

    output = run.finish()
    assert trained_seeds(sweep, run.store) == SEEDS
    assert "All 28 stages that are needed are done; 4 are not needed." in output
    assert "1 holds, 1 undecided" in output
    for stage in finished:
        assert run.folder(stage).attempts.newest_token() == tokens[stage.key]

    certain, close = json.loads(read("report", "--json"))["claims"]
    assert (certain["verdict"], certain["looks"], certain["added"]) == ("holds", 1, [])
    assert (close["verdict"], close["looks"], close["added"]) == ("undecided", 3, [3, 4])
    counts = json.loads(read("status", "--json"))["sweeps"][0]["counts"]
    assert {word: n for word, n in counts.items() if n} == {"done": 28, "not needed": 4}
    assert "28 cached, 4 not needed" in read("plan")
    assert "running" not in run.finish()
