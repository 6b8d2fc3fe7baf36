"""Processes that form a group. What they import is imported once, in a process that they fork from.

Nothing else has run in that one, and a fork of the tests' own could not go backward.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from typing import Any

import pytest
import torch

multiprocessing.set_forkserver_preload(
    ["torch.distributed.fsdp", "torch.distributed.checkpoint", "trainers.stage", "trainers.workers"]
)


def start(function: Callable[..., None], *arguments: Any, count: int) -> None:
    """Call `function(rank, *arguments)` in each of `count` processes, and wait for them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # this checkout's code
        forkserver.ensure_running()
    torch.multiprocessing.start_processes(
        function, arguments, nprocs=count, start_method="forkserver"
    )
