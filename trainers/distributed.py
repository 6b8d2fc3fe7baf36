"""A training stage by several workers, through Ray Train.

The stage's trial calls `run_workers`, which starts one process per worker, on any of the nodes, and
waits for them. Every process does the stage's work with its `WorkerGroup`. Worker 0 writes to the
store. A worker that dies ends the group. The trial then begins another attempt, which resumes from
the last checkpoint with as many workers as it can get.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import socket
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import write_atomic
from fope_lab.stages import Resources, TrainingConfig
from fope_lab.store import Attempt, Checkpoint
from trainers.worker_attempt import Loan

FEWER_AFTER_SECONDS = 60.0
"""How long an attempt that follows a lost one waits for all workers, before it takes fewer."""

RESERVED = ".reserved"
"""Ends the name of a file that holds the placement group of an attempt's workers."""


class WorkersLostError(RuntimeError):
    """Workers died, or were no longer reached: the stage can go on from its last checkpoint."""


class WorkFailedError(Exception):
    """What the work raised on a worker, on its way to the trial."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class Task:
    """What each worker gets."""

    stage: TrainingConfig
    loan: Loan
    parents: Mapping[str, Path]
    notes: Path


def run_workers(
    stage: TrainingConfig,
    attempt: Attempt,
    parents: Mapping[str, Path],
    *,
    again: bool,
    notes: Path,
) -> dict[str, Any]:
    """The stage's work by all its workers: what that of worker 0 returned.

    If this is done `again`, since workers were lost or the process that waited for them, it is done
    by as many as there is room for now. `notes` is a folder that all nodes see, for files of Ray's
    own. Raises what the work raised, and WorkersLostError.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    on_gpus = stage.resources.gpus > 0
    folder = notes / f"{stage.kind}-{attempt.folder.key}"
    _free_earlier(folder)
    size = stage.resources.size
    if again:
        rows = stage.train.batch_tokens // stage.data.length
        size = _available_size(stage.resources, possible_sizes(rows, size))
        stage = with_memory_as_planned(stage)
    trainer = TorchTrainer(
        functools.partial(_work, Task(stage, Loan.of(attempt), parents, folder)),
        # Sums of counts and the like may lie on the CPU.
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if on_gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=size,
            use_gpu=on_gpus,
            resources_per_worker=_worker_bundle(stage.resources),
        ),
        run_config=RunConfig(
            name=str(attempt.token),
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),
        ),
    )
    try:
        result, checkpoint = trainer.fit().return_value
    except TrainingFailedError as error:
        raise _reason(error) from None
    attempt.saved_by_worker(checkpoint)
    return dict(result)


def with_memory_as_planned(stage: TrainingConfig) -> TrainingConfig:
    """The stage, so that fewer workers need no more memory each: they take their larger shares of a
    batch in as small parts as all workers would."""
    train = stage.train
    tokens = train.micro_batch_tokens or train.batch_tokens // stage.resources.size
    return stage.model_copy(
        update={"train": train.model_copy(update={"micro_batch_tokens": tokens})}
    )


def _worker_bundle(resources: Resources) -> dict[str, float]:
    """What each of several workers occupies, in Ray's names."""
    return {"CPU": resources.cpus, **({"GPU": 1.0} if resources.gpus else {})}


def possible_sizes(rows: int, size: int) -> list[int]:
    """The numbers of workers, `size` at most, that share `rows` rows evenly, most first."""
    return [count for count in range(size, 0, -1) if rows % count == 0]


def _available_size(resources: Resources, sizes: Sequence[int]) -> int:
    """The first of `sizes` for which there is room now, or the last.

    For the first, all workers, nodes that are on their way are waited for.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    patience = FEWER_AFTER_SECONDS
    for size in sizes:
        group = placement_group([_worker_bundle(resources)] * size)
        there_is_room = group.wait(timeout_seconds=patience)
        remove_placement_group(group)
        if there_is_room:
            return size
        patience = 1.0
    return sizes[-1]


def _work(task: Task) -> tuple[dict[str, Any], Checkpoint | None]:
    """What each worker does: what the work returned, and the last checkpoint.

    A process group is there already.
    """
    import torch.distributed as dist
    from ray.util import get_current_placement_group

    from trainers.process_group import STRATEGIES, is_lost_peer

    resources = task.stage.resources
    workers = STRATEGIES[resources.strategy]()
    if workers.rank == 0:
        reserved = pickle.dumps(get_current_placement_group())
        write_atomic(task.notes / f"{task.loan.token}{RESERVED}", reserved)
    places: list[str] = [""] * workers.size
    dist.all_gather_object(places, f"{socket.gethostname()}:{os.getpid()}")
    module, _, function = task.stage.entry_point.partition(":")
    work = getattr(importlib.import_module(module), function)
    try:
        with task.loan.open(workers.rank) as attempt:
            attempt.note(f"workers ({resources.strategy}): {', '.join(places)}")
            result = work(task.stage, attempt, task.parents, workers=workers)
    except Exception as error:
        if is_lost_peer(error):
            raise
        # A traceback does not survive the way to the trial, a note does.
        error.add_note(f"On worker {workers.rank}:\n{traceback.format_exc()}")
        raise WorkFailedError(error) from None
    return result, attempt.newest


def _free_earlier(folder: Path) -> None:
    """Free what earlier attempts had reserved for their workers.

    Ray Train does so itself, unless the process that called it dies. Then the reservation stays:
    the process that Ray has for this case asks the dashboard, which may not be there.
    """
    from ray.util.placement_group import remove_placement_group

    for path in folder.glob(f"*{RESERVED}"):
        remove_placement_group(pickle.loads(path.read_bytes()))
        path.unlink()


def _reason(error: Exception) -> Exception:
    """What the work itself raised, if it did, or else WorkersLostError.

    Where a worker is gone, all that the others can say is that they don't reach it.
    """
    from ray.train import ControllerError, WorkerGroupError

    from trainers.process_group import is_lost_peer

    if isinstance(error, ControllerError):
        return error.controller_failure
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {0: error}
    for _, failure in sorted(failures.items()):
        if isinstance(failure, WorkFailedError):
            return failure.error
    gone = {rank: one for rank, one in failures.items() if not is_lost_peer(one)} or failures
    texts = {rank: str(getattr(one, "health_check_failure", one)) for rank, one in gone.items()}
    said = "; ".join(f"{rank}: {' '.join(text.split())[:1000]}" for rank, text in texts.items())
    return WorkersLostError(f"lost workers, by number: {said}")
