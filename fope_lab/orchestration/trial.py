"""What runs in a Ray Tune trial: one stage, from taking its lease to DONE.

If the stage itself fails, the store records it and the trial ends normally: Tune retries only a
process that died. Actors are reused, so the global state that a stage may leave behind is reset
before the next one. Several workers run in processes of their own; if some die, the trial itself
begins another attempt, so that Tune need not start a new trial.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fope_lab.planning.devices import CPU, processor
from fope_lab.planning.workload import workload_of
from fope_lab.stages import TrainingConfig
from fope_lab.stages.entry_points import load_function
from fope_lab.store import Attempt, StageDoneError, Status, Store, StoreError
from fope_lab.store.lease import LeaseHeldError
from fope_lab.sweep.graph import Stage
from trainers.distributed import WorkersLostError, run_workers

KEY, OWNER, SUPERSEDE, OUTCOME = "key", "owner", "supersede", "outcome"
"""The keys of a trial's configuration and of its report."""
WORKERS_RETRIES = 3
"""How often a stage whose workers died is tried again, each time from its last checkpoint."""


def run_stage(config: Mapping[str, Any], *, stages: Mapping[str, Stage], store_root: str) -> None:
    """Run the stage `config["key"]` as a Tune function, and report the status it ended with."""
    from ray import tune

    tune.report({OUTCOME: str(run_attempt(config, stages, Store.create(store_root)))})


def ray_scratch_dir(store: Store, owner: str) -> Path:
    """The folder for Ray's own files of a driver's run, on a disk that all nodes see."""
    return store.root / ".tune" / owner


def run_attempt(config: Mapping[str, Any], stages: Mapping[str, Stage], store: Store) -> Status:
    """Run a stage, and again if its workers die; returns the status of the last attempt.

    `stages` holds the stage and its parents by key. The status is RUNNING if another driver
    holds the stage, and INTERRUPTED if workers died every time.
    """
    for _ in range(WORKERS_RETRIES):
        status = _attempt(config, stages, store)
        if status is not Status.INTERRUPTED:
            return status
    return _attempt(config, stages, store)


def _attempt(config: Mapping[str, Any], stages: Mapping[str, Stage], store: Store) -> Status:
    """Make one attempt at a stage; returns the status that it leaves."""
    stage = stages[config[KEY]]
    folder = store.folder(stage.kind, stage.key)
    try:
        attempt = folder.begin(config[OWNER], _request(stage), config[SUPERSEDE])
    except LeaseHeldError:
        return Status.RUNNING
    except StageDoneError:
        return Status.DONE
    try:
        with attempt:
            if folder.is_done():  # its former owner has finished it in the meantime
                return Status.DONE
            parents = _artifacts(stage, stages, store)
            if isinstance(stage.spec, TrainingConfig) and stage.spec.resources.size > 1:
                result = run_workers(
                    stage.spec,
                    attempt,
                    parents,
                    is_retry=_is_retry(attempt),
                    scratch=ray_scratch_dir(store, config[OWNER]),
                )
            else:
                _reset_process()
                result = load_function(stage.spec.entry_point)(stage.spec, attempt.writer, parents)
            attempt.finish(result, execution_record(stage, result))
    except WorkersLostError:
        return Status.INTERRUPTED
    except Exception:
        return Status.FAILED  # `with attempt` has recorded the reason in the store
    return Status.DONE


def _is_retry(attempt: Attempt) -> bool:
    """Whether the same driver made the attempt before, which died or lost its workers."""
    attempts = attempt.lease.attempts
    now, before = attempts.record(attempt.lease.token), attempts.record(attempt.lease.token - 1)
    return now is not None and before is not None and now.owner == before.owner


def _request(stage: Stage) -> dict[str, Any]:
    """What the store records of a stage before it runs."""
    return {
        "key": stage.key,
        "kind": stage.kind,
        "version": stage.spec.version,
        "config": stage.config,
        "parents": {**stage.parents, **stage.checkpoints},
    }


def _artifacts(stage: Stage, stages: Mapping[str, Stage], store: Store) -> dict[str, Path]:
    """The folder that each parent left, by its role."""
    folders = {role: Path(path) for role, path in stage.checkpoints.items()}
    for role, key in stage.parents.items():
        folder = store.folder(stages[key].kind, key)
        checkpoint = folder.checkpoint()
        if checkpoint is None:
            raise StoreError(f"{folder.path} is done but has no checkpoint")
        folders[role] = checkpoint.path
    return folders


def execution_record(stage: Stage, result: Mapping[str, Any]) -> dict[str, Any]:
    """The device, torch's threads and the workload of a stage that has just run in this process.

    This process does not see the GPUs of several workers: a training's `result` names theirs.
    """
    import torch

    resources = stage.spec.resources
    device: str | None = CPU
    if resources.gpus:
        alone = resources.size == 1 and torch.cuda.is_available()
        device = torch.cuda.get_device_name() if alone else result["recorded"].get("device")
    return {
        "device": device,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "workers": resources.size,
        "work": asdict(workload_of(stage)),
    }


def _reset_process() -> None:
    """Reset the global state of torch that an earlier stage in this process may have changed."""
    import torch

    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
