"""What runs in a Ray Tune trial: one stage, from taking its lease to DONE.

A stage's own failure is recorded in the store and reported as an ordinary end of the trial: Tune
retries only what is worth a retry, a process that died. Actors are reused, so everything global
that a stage could leave behind is set anew at the start of the next. The work of several workers is
done by processes of theirs; if some die, the trial tries again, so that Tune need not start anew.
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
from fope_lab.store import Attempt, StageDoneError, Store, StoreError
from fope_lab.store.lease import LeaseHeldError
from fope_lab.sweep.resolve import Stage
from trainers.distributed import WorkersLostError, run_workers

KEY, OWNER, SUPERSEDE, OUTCOME = "key", "owner", "supersede", "outcome"
"""What a trial's configuration and its report hold."""
HELD, LOST = "held", "lost"
"""A trial's outcome when another driver turned out to hold the stage, or when workers died."""
WORKERS_RETRIES = 3
"""Of a stage whose workers died, each going on from its last checkpoint."""


@dataclass(frozen=True)
class TrialStage:
    """A stage as its trial needs it: with the kind and key, or the folder, of each parent."""

    stage: Stage
    parents: Mapping[str, tuple[str, str] | Path]
    request: Mapping[str, Any]


def trial_stages(stages: Mapping[str, Stage]) -> dict[str, TrialStage]:
    """Every stage of a plan, by key, ready to be sent to the trials."""
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
    """The Tune function: runs the stage `config["key"]` and reports how it ended."""
    from ray import tune

    tune.report({OUTCOME: run_attempt(config, stages[config[KEY]], Store.create(store_root))})


def ray_scratch_dir(store: Store, owner: str) -> Path:
    """Where Ray keeps its files of a driver's run, on a disk that all nodes see."""
    return store.root / ".tune" / owner


def run_attempt(config: Mapping[str, Any], trial: TrialStage, store: Store) -> str:
    """Attempts at a stage, as many as its workers' deaths ask for: how the last one ended."""
    retries = 0
    while (outcome := _attempt(config, trial, store)) == LOST and retries < WORKERS_RETRIES:
        retries += 1
    return outcome


def _attempt(config: Mapping[str, Any], trial: TrialStage, store: Store) -> str:
    """One attempt at a stage: how it ended."""
    stage = trial.stage
    folder = store.folder(stage.kind, stage.key)
    try:
        attempt = folder.begin(config[OWNER], trial.request, config[SUPERSEDE])
    except LeaseHeldError:
        return HELD
    except StageDoneError:
        return "done"
    try:
        with attempt:
            if folder.is_done():  # finished by its former owner in the meantime
                return "done"
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
        return LOST
    except Exception:
        return "failed"  # with its reason in the store, where `with attempt` has put it
    return "done"


def _is_retry(attempt: Attempt) -> bool:
    """Whether the attempt before was the same driver's: it died, or its workers did."""
    attempts = attempt.lease.attempts
    now, before = attempts.record(attempt.token), attempts.record(attempt.token - 1)
    return now is not None and before is not None and now.owner == before.owner


def _artifacts(trial: TrialStage, store: Store) -> dict[str, Path]:
    """The directory that each parent left, by role."""
    found: dict[str, Path] = {}
    for role, parent in trial.parents.items():
        if isinstance(parent, Path):
            found[role] = parent
            continue
        checkpoint = store.folder(*parent).checkpoint()
        if checkpoint is None:
            raise StoreError(f"{store.folder(*parent).path} is done but has no checkpoint")
        found[role] = checkpoint.path
    return found


def _reset_process() -> None:
    import torch

    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
