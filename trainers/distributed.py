"""A training, or an evaluation, by several workers, through Ray Train.

The stage's trial calls `run_workers`, which starts one process per worker, on any of the nodes.
Worker 0 writes to the store. A worker that dies ends the group. The trial then begins another
attempt, which resumes from the last checkpoint with as many workers as it can get.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import socket
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.plugins import WithPlugins
from fope_lab.stages.base import Resources, StageConfig, load_function
from fope_lab.stages.training import TrainingConfig
from fope_lab.store.attempt import Attempt
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.lease import StageStoppedError
from fope_lab.store.writer import AttemptHandle, FolderWriter, RunWriter
from trainers.measures import Execution, SystemMonitor, execution_here

FEWER_AFTER_SECONDS = 60.0
"""How long an attempt after lost workers waits for all workers before it takes fewer."""

RESERVED = ".reserved"
"""The suffix of files with the placement group of an attempt's workers, for the next to free."""


NODE_LOST = "its node has died"
"""What Ray says of a process whose whole node is gone."""


class WorkersLostError(RuntimeError):
    """Workers died or could not be reached. The stage can resume from its last checkpoint."""

    def __init__(self, text: str, *, lost_node: bool = False) -> None:
        super().__init__(text)
        self.lost_node = lost_node


class WorkFailedError(Exception):
    """Carries an error that the work raised on a worker to the trial."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class WorkerInputs:
    """What every worker of an attempt gets."""

    spec: StageConfig
    handle: AttemptHandle
    parents: Mapping[str, Path]
    reservations: Path


def run_workers(
    spec: StageConfig,
    attempt: Attempt,
    parents: Mapping[str, Path],
    *,
    is_retry: bool,
    scratch: Path,
) -> tuple[dict[str, Any], Execution]:
    """Do the stage's work with all its workers; returns worker 0's result, and what it ran on.

    A retry takes as many workers as there is room for now. `scratch` is a folder for Ray's own
    files that all nodes see. Raises what the work raised, WorkersLostError, and StageStoppedError.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    on_gpus = spec.resources.gpus > 0
    folder = free_reservations(spec.kind, attempt.writer.paths.key, scratch)
    size = spec.resources.size
    if is_retry:
        size = _available_size(spec.resources, sizes_to_go_on(spec))
        spec = with_size(spec, size)
    inputs = WithPlugins(WorkerInputs(spec, attempt.writer.handle, parents, folder))
    trainer = TorchTrainer(
        functools.partial(_work, inputs),
        # Some sums, such as those of counts, are on the CPU.
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if on_gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=size, use_gpu=on_gpus, resources_per_worker=_worker_bundle(spec.resources)
        ),
        run_config=RunConfig(
            name=str(attempt.token),
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),
        ),
    )
    try:
        result, checkpoint, execution = trainer.fit().return_value
    except TrainingFailedError as error:
        raise _cause(error) from None
    attempt.writer.newest = checkpoint  # worker 0 saved it with a writer of its own
    if isinstance(result, StageStoppedError):
        raise result
    return dict(result), execution


def with_size(spec: StageConfig, size: int) -> StageConfig:
    """The stage as `size` workers do it, which may be fewer than it has.

    Fewer need no more memory each: they process larger shares in as large micro-batches.
    """
    own = spec.resources
    if size == own.size:
        return spec
    resources = replace(own, workers=size, gpus=size if own.gpus else own.gpus)
    if not isinstance(spec, TrainingConfig):
        return replace(spec, resources=resources)
    train = replace(spec.train, micro_batch_tokens=spec.train.micro_batch(own.size))
    return replace(spec, resources=resources, train=train)


def sizes_to_go_on(spec: StageConfig) -> list[int]:
    """The numbers of workers that can go on with a stage, the largest first: those that can share
    the rows of a training's batch evenly, and for an evaluation any."""
    sizes = range(spec.resources.size, 0, -1)
    if isinstance(spec, TrainingConfig):
        rows = spec.train.batch_tokens // spec.data.length
        return [count for count in sizes if rows % count == 0]
    return list(sizes)


def _worker_bundle(resources: Resources) -> dict[str, float]:
    """The resources that one of several workers occupies, by Ray's names."""
    return {"CPU": resources.cpus, **({"GPU": 1.0} if resources.gpus else {})}


def _available_size(resources: Resources, sizes: Sequence[int]) -> int:
    """The first of `sizes` that there is room for now, or the last."""
    from ray.util.placement_group import placement_group, remove_placement_group

    patience = FEWER_AFTER_SECONDS  # for nodes that are starting
    for size in sizes:
        group = placement_group([_worker_bundle(resources)] * size)
        there_is_room = group.wait(timeout_seconds=patience)
        remove_placement_group(group)
        if there_is_room:
            return size
        patience = 1.0
    return sizes[-1]


def _work(
    carried: WithPlugins[WorkerInputs],
) -> tuple[dict[str, Any] | StageStoppedError, Checkpoint | None, Execution]:
    """Do one worker's part; returns its result, the last checkpoint, and what it ran on.

    A stage that stops on request ends normally: at an error of a worker, Ray Train would kill
    worker 0 while it writes the checkpoint.
    """
    import torch
    from ray.util import get_current_placement_group

    from trainers.workers import STRATEGIES, is_lost_peer

    inputs = carried.value
    resources = inputs.spec.resources
    torch.set_num_threads(resources.threads)
    workers = STRATEGIES[resources.strategy]()
    execution = execution_here(resources, workers.size)
    if workers.rank == 0:
        reserved = pickle.dumps(get_current_placement_group())
        write_atomic(inputs.reservations / f"{inputs.handle.token}{RESERVED}", reserved)
    places = workers.gather(f"{socket.gethostname()}:{os.getpid()}")
    work = load_function(inputs.spec.entry_point)
    writer = (FolderWriter if workers.rank == 0 else RunWriter)(inputs.handle)
    if isinstance(inputs.spec, TrainingConfig):
        writer.observe = SystemMonitor().measure_if_due
    torch.manual_seed(0)  # as where one worker does the stage
    try:
        with contextlib.closing(writer):
            writer.note(f"workers ({resources.strategy}): {', '.join(places)}")
            result = work(inputs.spec, writer, inputs.parents, workers=workers)
    except StageStoppedError as stopped:
        return stopped.with_traceback(None), writer.newest, execution
    except Exception as error:
        if is_lost_peer(error):
            raise
        # A traceback does not survive the way to the trial; a note does.
        error.add_note(f"On worker {workers.rank}:\n{traceback.format_exc()}")
        raise WorkFailedError(error) from None
    return result, writer.newest, execution


def free_reservations(kind: str, key: str, scratch: Path) -> Path:
    """Free what earlier attempts at a stage had reserved: Ray Train does not if its caller died,
    without a dashboard. Returns the stage's folder in `scratch`."""
    from ray.util.placement_group import remove_placement_group

    folder = scratch / f"{kind}-{key}"
    for path in folder.glob(f"*{RESERVED}"):
        remove_placement_group(pickle.loads(path.read_bytes()))
        path.unlink()
    return folder


def is_lost_node(error: BaseException | None) -> bool:
    """Whether an error of Ray says that a process is gone because its node is."""
    return bool(getattr(error, "preempted", False)) or NODE_LOST in str(error)


def _cause(error: Exception) -> Exception:
    """The error that the work raised, Ray Train's own failure, or WorkersLostError."""
    from ray.train import ControllerError, WorkerGroupError

    from trainers.workers import is_lost_peer

    if isinstance(error, ControllerError):
        return error.controller_failure
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {0: error}
    for _, failure in sorted(failures.items()):
        if isinstance(failure, WorkFailedError):
            return failure.error
    # When a worker is gone, the others only report that they can't reach it.
    gone = {rank: e for rank, e in failures.items() if not is_lost_peer(e)} or failures
    texts = {rank: str(getattr(e, "health_check_failure", e)) for rank, e in gone.items()}
    reasons = "; ".join(f"{rank}: {' '.join(text.split())[:1000]}" for rank, text in texts.items())
    lost_node = any(map(is_lost_node, gone.values())) or any(NODE_LOST in t for t in texts.values())
    return WorkersLostError(f"lost workers, by number: {reasons}", lost_node=lost_node)
