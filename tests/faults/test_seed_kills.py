"""A driver killed while seeds are added: the next run decides as the first would have."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import Run  # type: ignore[attr-defined]
from seed_sweep import SEED_SWEEP, SEEDS, trained_seeds

from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("seed", [1, 3])
def test_the_driver_killed_while_a_seed_trains(tmp_path: Path, seed: int) -> None:
    """Among the first seeds, and among those that a claim had added."""
    run = Run(tmp_path, SEED_SWEEP)
    sweep = load_sweep(run.sweep)
    driver = run.start()
    run.wait(lambda: [0, 1, 2, 3][: seed + 1] in trained_seeds(sweep, run.store).values(), 240)
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
