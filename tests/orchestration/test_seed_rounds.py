"""Seeds added by claims through a real Ray: what is trained, and what is said of the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from seed_sweep import SEED_SWEEP, SEEDS, trained_seeds

from fope_lab.store import Store
from fope_lab.sweep import load_sweep


@pytest.mark.cluster
def test_seeds_are_added_for_the_claim_that_is_undecided(tmp_path: Path) -> None:
    path, store = tmp_path / "seeds.yaml", tmp_path / "store"
    path.write_text(SEED_SWEEP)

    def lab(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fope_lab.cli", words[0], str(path), "--store", str(store)]
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        done = subprocess.run(
            [*command, *words[1:]], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    before = json.loads(lab("plan", "--json").stdout)["totals"]
    assert before["run"] == before["least"]["stages"]
    assert before["least"]["tokens"] * 5 == before["tokens"] * 3
    assert "of work, 20 to 32 stages" in lab("plan").stdout
    output = lab("run").stdout
    assert trained_seeds(load_sweep(path), Store(store)) == SEEDS
    assert "All 28 stages that are needed are done; 4 are not needed." in output

    certain, close = json.loads(lab("report", "--json").stdout)["claims"]
    assert (certain["verdict"], certain["looks"], certain["added"]) == ("holds", 1, [])
    assert (close["verdict"], close["looks"], close["added"]) == ("undecided", 3, [3, 4])
    counts = json.loads(lab("status", "--json").stdout)["sweeps"][0]["counts"]
    assert {word: n for word, n in counts.items() if n} == {"done": 28, "not needed": 4}
    assert "28 cached, 4 not needed" in lab("plan").stdout
    assert "running" not in lab("run").stdout
