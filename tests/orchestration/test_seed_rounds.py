"""Seeds added by claims through a real Ray: what is trained, and what is said of the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from seed_sweep import SEED_SWEEP, SEEDS, trained_seeds

from fope_lab.cli import main
from fope_lab.store import Store
from fope_lab.sweep import load_sweep


@pytest.mark.cluster
def test_seeds_are_added_for_the_claim_that_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "seeds.yaml", tmp_path / "store"
    path.write_text(SEED_SWEEP)

    def run() -> str:
        command = [sys.executable, "-m", "fope_lab.cli", "run", str(path), "--store", str(store)]
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read(command: str, *options: str) -> str:
        assert main([command, str(path), "--store", str(store), *options]) == 0
        return capsys.readouterr().out

    before = json.loads(read("plan", "--json"))["totals"]
    assert before["run"] == before["least"]["stages"]
    assert before["least"]["tokens"] * 5 == before["tokens"] * 3
    assert "of work, 20 to 32 stages" in read("plan")
    output = run()
    assert trained_seeds(load_sweep(path), Store(store)) == SEEDS
    assert "All 28 stages that are needed are done; 4 are not needed." in output

    certain, close = json.loads(read("report", "--json"))["claims"]
    assert (certain["verdict"], certain["looks"], certain["added"]) == ("holds", 1, [])
    assert (close["verdict"], close["looks"], close["added"]) == ("undecided", 3, [3, 4])
    counts = json.loads(read("status", "--json"))["sweeps"][0]["counts"]
    assert {word: n for word, n in counts.items() if n} == {"done": 28, "not needed": 4}
    assert "28 cached, 4 not needed" in read("plan")
    assert "running" not in run()
