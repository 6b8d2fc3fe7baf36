"""Processes that tokenise: one that is killed is an error, and none outlives the stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import repeat
from pathlib import Path

import pytest

from fope_lab.data.problems import DataError
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

pytestmark = pytest.mark.faults

TEXT = "text " * 10_000
STAGE = """
from itertools import repeat
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
for _ in tokenised(repeat("text " * 10_000), "text", ByteTokenizer(), 2):
    print("alive", flush=True)
"""


def children(pid: int) -> set[int]:
    """The processes that a process has started and that are still there."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def test_a_worker_that_is_killed_is_an_error_and_no_hang() -> None:
    before = children(os.getpid())
    results = tokenised(repeat(TEXT), "text", ByteTokenizer(), 2)
    next(results)
    os.kill(min(children(os.getpid()) - before), signal.SIGKILL)
    with pytest.raises(DataError, match="ended with exit status -9"):
        for _ in results:
            pass
    assert children(os.getpid()) == before


def test_workers_end_with_a_stage_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STAGE], stdout=subprocess.PIPE) as stage:
        assert stage.stdout is not None
        stage.stdout.readline()
        workers = children(stage.pid)
        assert len(workers) == 2
        stage.kill()
    until = time.monotonic() + 20
    while any(map(_runs, workers)):
        assert time.monotonic() < until, "a worker is still there"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    """Whether a process is there; one that only waits for its parent's farewell is not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
