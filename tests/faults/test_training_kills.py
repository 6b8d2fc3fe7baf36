"""A training killed again and again gives the bits of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import training_process
from training_process import RealStage, assert_equal, make, prepare

pytestmark = pytest.mark.faults
KILLS = 4


def start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """The training of FOLDER/NAME in a process."""
    command = [sys.executable, training_process.__file__, str(folder), name]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def last_step(stage: RealStage) -> int:
    checkpoint = stage.folder.checkpoint()
    return 0 if checkpoint is None else checkpoint.step


def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    data = prepare(tmp_path)
    whole = make(tmp_path / "whole", data)
    assert start(tmp_path, "whole").wait(timeout=120) == 0
    stage, chance = make(tmp_path / "killed", data), random.Random(0)
    for _ in range(KILLS):
        before, process = last_step(stage), start(tmp_path, "killed")
        until = time.monotonic() + 60
        while last_step(stage) == before and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.2))  # somewhere in the steps or the writing after it
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was finished before it could be killed"
        assert not stage.folder.is_done()
    assert start(tmp_path, "killed").wait(timeout=120) == 0
    assert stage.folder.attempts.newest_token() == KILLS + 1
    assert_equal(stage, whole)
