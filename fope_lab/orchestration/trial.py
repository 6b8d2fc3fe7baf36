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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.orchestration.execution_record import execution_record
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


@dataclass(frozen=True)
class TrialStage:
    """A stage as its trial needs it.

    `parents` has the kind and key, or the folder, of each parent by its role.
    """

    stage: Stage
    parents: Mapping[str, tuple[str, str] | Path]
    request: Mapping[str, Any]


def trial_stages(stages: Mapping[str, Stage]) -> dict[str, TrialStage]:
    """All stages of a plan by key, in the form that is sent to the trials."""
    return {
        key: TrialStage(
            stage,
            {
                **{role: (stages[k].kind, k) for role, k in stage.parents.items()},
                **{role: Path(path) for role, path in stage.checkpoints.items()},
            },
            {
                "key": key,
                "kind": stage.kind,
                "version": stage.spec.version,
                "config": stage.config,
                "parents": {**stage.parents, **stage.checkpoints},
            },
        )
        for key, stage in stages.items()
    }


def run_stage(
    config: Mapping[str, Any], *, stages: Mapping[str, TrialStage], store_root: str
) -> None:
    """Run the stage `config["key"]` as a Tune function, and report the status it ended with."""
    from ray import tune

    status = run_attempt(config, stages[config[KEY]], Store.create(store_root))
    tune.report({OUTCOME: str(status)})


def ray_scratch_dir(store: Store, owner: str) -> Path:
    """The folder for Ray's own files of a driver's run, on a disk that all nodes see."""
    return store.root / ".tune" / owner


def run_attempt(config: Mapping[str, Any], trial: TrialStage, store: Store) -> Status:
    """Run a stage, and again if its workers die; returns the status of the last attempt.

    It is RUNNING if another driver holds the stage, and INTERRUPTED if workers died every time.
    """
    for _ in range(WORKERS_RETRIES):
        status = _attempt(config, trial, store)
        if status is not Status.INTERRUPTED:
            return status
    return _attempt(config, trial, store)


def _attempt(config: Mapping[str, Any], trial: TrialStage, store: Store) -> Status:
    """Make one attempt at a stage; returns the status that it leaves."""
    stage = trial.stage
    folder = store.folder(stage.kind, stage.key)
    try:
        attempt = folder.begin(config[OWNER], trial.request, config[SUPERSEDE])
    except LeaseHeldError:
        return Status.RUNNING
    except StageDoneError:
        return Status.DONE
    try:
        with attempt:
            if folder.is_done():  # its former owner has finished it in the meantime
                return Status.DONE
            parents = _artifacts(trial, store)
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
    now, before = attempts.record(attempt.token), attempts.record(attempt.token - 1)
    return now is not None and before is not None and now.owner == before.owner


def _artifacts(trial: TrialStage, store: Store) -> dict[str, Path]:
    """The folder that each parent left, by its role."""
    folders: dict[str, Path] = {}
    for role, parent in trial.parents.items():
        if isinstance(parent, Path):
            folders[role] = parent
            continue
        checkpoint = store.folder(*parent).checkpoint()
        if checkpoint is None:
            raise StoreError(f"{store.folder(*parent).path} is done but has no checkpoint")
        folders[role] = checkpoint.path
    return folders


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
