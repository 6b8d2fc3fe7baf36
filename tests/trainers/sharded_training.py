"""A training by a group of gloo workers with FSDP, whose checkpoints are sharded.

`python sharded_training.py FOLDER NAME SIZE [SECONDS]` is an attempt of so many workers at the
stage of FOLDER/NAME; writing shards then takes SECONDS longer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import FileSystemWriter

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from real_training import LENGTH, DiedError, RealStage, pretraining

from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.store.writer import RunWriter
from trainers import workers as process_group
from trainers.stage import run
from trainers.workers import Shards

ROWS, STEPS, DEAD_AT = 12, 8, 5
"""The rows of a batch, which 1, 2 and 3 workers can share, and the steps."""


def make(folder: Path, name: str) -> RealStage:
    """The stage `name`, which saves a checkpoint after every second step."""
    stage = pretraining(STEPS, batch_tokens=ROWS * LENGTH, tokens=STEPS * ROWS * LENGTH)
    data = {role: folder / role for role in ("data.0", "validation.0")}
    return RealStage(folder / name, stage, data)


def attempts(rank: int, size: int, folder: Path, *of: tuple[str, bool, float]) -> None:
    """One worker's part in attempts at stages: each is a name, whether it dies, and its seconds."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous-{size}-{of[0][0]}-{os.getppid()}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    for name, dies, seconds in of:
        origin = folder / name.replace(f"from-{size}", "dead")
        if rank == 0 and name.startswith("from-"):
            shutil.copytree(origin, folder / name)
        dist.barrier()
        _attempt(rank, folder, name, dies, seconds)
    dist.destroy_process_group()


def _attempt(rank: int, folder: Path, name: str, dies: bool, seconds: float) -> None:
    """One worker's part in an attempt, which dies, if it does, before step DEAD_AT."""
    stage, workers, batch = make(folder, name), Shards(), TrainingData.batch
    write_data = FileSystemWriter.write_data

    def dying(data: TrainingData, index: int) -> Batch:
        if dies and index == DEAD_AT:  # while a checkpoint is being written, which it waits for
            raise DiedError
        return batch(data, index)

    def slow(writer: FileSystemWriter, *arguments: Any) -> Any:
        time.sleep(seconds)
        return write_data(writer, *arguments)

    with (
        patch.object(process_group, "SHARDED_FROM_BYTES", 0),
        patch.object(TrainingData, "batch", dying),
        patch.object(FileSystemWriter, "write_data", slow),
        contextlib.suppress(DiedError),
        contextlib.ExitStack() as stack,
    ):
        begun = stack.enter_context(stage.folder.begin("test", {})) if rank == 0 else None
        handle = workers.gather(begun.writer.handle if begun else None)[0]
        writer = begun.writer if begun else RunWriter(handle)
        result = run(stage.stage, writer, stage.data, workers=workers)
        if begun:
            begun.finish(result)


if __name__ == "__main__":
    folder, name, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    seconds = float(sys.argv[4]) if sys.argv[4:] else 0.0
    torch.multiprocessing.spawn(attempts, (size, folder, (name, False, seconds)), nprocs=size)
