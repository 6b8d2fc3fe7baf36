"""A process of a group that evaluates together, for tests of groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from real_evaluations import RealEvaluation

from fope_lab.store.writer import AttemptHandle, RunWriter
from trainers.workers import Replicas


def group(rank: int, size: int, folder: Path, cases: Sequence[str]) -> None:
    """Evaluate each case as the stage CASE-SIZE; only worker 0 writes to its store."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous-{size}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    workers = Replicas()
    for case in cases:
        evaluation = RealEvaluation(folder, f"{case}-{size}", case)
        if rank == 0:
            evaluation.attempt(workers)
        else:
            evaluation.evaluate(RunWriter(AttemptHandle(evaluation.stage.paths, 1, None)), workers)
    dist.destroy_process_group()
