"""Workers killed while they write a sharded checkpoint: it is lost, the one before it is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "trainers"))

import sharded_training
from real_training import assert_equal, prepare
from sharded_training import make

from fope_lab.store.checkpoint import list_checkpoints, newest_complete

pytestmark = pytest.mark.faults
SECONDS = 1.5


def start(folder: Path, name: str, seconds: float) -> subprocess.Popen[bytes]:
    """An attempt of two workers, whose writing takes so long."""
    command = [sys.executable, sharded_training.__file__, str(folder), name, "2", str(seconds)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started."""
    children = psutil.Process(process.pid).children(recursive=True)
    for one in [*children, psutil.Process(process.pid)]:
        one.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(children)


def test_killed_while_they_write(tmp_path: Path) -> None:
    prepare(tmp_path)
    whole, killed = make(tmp_path, "whole"), make(tmp_path, "killed")
    assert start(tmp_path, "whole", 0.0).wait(timeout=180) == 0
    process, paths = start(tmp_path, "killed", SECONDS), killed.folder.paths
    until = time.monotonic() + 120
    while time.monotonic() < until:
        newest = newest_complete(paths)
        writing = [path for path in paths.checkpoints.glob(".*") if (path / "shards").is_dir()]
        if newest is not None and newest.step == 2 and writing:
            break
        time.sleep(0.01)
    time.sleep(SECONDS / 3)
    kill(process)
    [half] = paths.checkpoints.glob(".*")
    assert [one.step for one in list_checkpoints(paths)] == [2]
    assert start(tmp_path, "killed", 0.0).wait(timeout=180) == 0
    assert not half.exists()
    record = killed.folder.attempts.record(2)
    assert record is not None
    assert record.details["resumed_from"]["step"] == 2
    assert_equal(killed, whole)
