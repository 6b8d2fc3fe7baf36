"""An evaluation killed again and again repeats nothing that it had, and ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

import real_evaluations
from real_evaluations import RealEvaluation, prepare

pytestmark = pytest.mark.faults
KILLS = 3


def start(evaluation: RealEvaluation) -> subprocess.Popen[bytes]:
    """An attempt in a process."""
    names = (str(evaluation.folder), evaluation.name, evaluation.case)
    command = [sys.executable, real_evaluations.__file__, *names]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def saved(evaluation: RealEvaluation) -> int:
    """How many batches the next attempt need not compute."""
    checkpoint = evaluation.stage.checkpoint()
    return 0 if checkpoint is None else checkpoint.step


@pytest.mark.parametrize("case", ["perplexity", "passkey-drawn"])
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, case: str) -> None:
    prepare(tmp_path)
    whole, killed = (RealEvaluation(tmp_path, name, case) for name in ("whole", "killed"))
    assert start(whole).wait(timeout=120) == 0
    log = tmp_path / "killed.batches"
    kept: list[int] = []
    for _ in range(KILLS):
        before, process, until = saved(killed), start(killed), time.monotonic() + 60
        while saved(killed) < before + 2 and time.monotonic() < until:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was finished before it could be killed"
        assert not killed.stage.is_done()
        kept.append(saved(killed))
        with log.open("a") as file:
            file.write("killed\n")
    assert start(killed).wait(timeout=120) == 0
    assert killed.outcome() == whole.outcome()
    every = (tmp_path / "whole.batches").read_text().split()
    lives = [life.split() for life in log.read_text().split("killed")]
    assert len(set(every)) == len(every)
    for first, computed in zip([0, *kept], lives, strict=True):
        assert computed == every[first : first + len(computed)], "it began where it was saved"
    assert lives[-1] == every[kept[-1] :]
