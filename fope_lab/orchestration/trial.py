"""What runs in a Ray Tune trial: one stage, from taking its lease to DONE.

A stage's own failure is recorded in the store and reported as an ordinary end of the trial: Tune
retries only what is worth a retry, a process that died. Actors are reused, so everything global
that a stage could leave behind is set anew at the start of the next.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.lease import LeaseHeldError
from fope_lab.store import StageDoneError, Store, StoreError
from fope_lab.sweep.resolve import Stage

KEY, OWNER, SUPERSEDE, OUTCOME = "key", "owner", "supersede", "outcome"
"""What a trial's configuration and its report hold."""
HELD = "held"
"""A trial's outcome when another driver turned out to hold the stage."""


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

    tune.report({OUTCOME: run_attempt(config, stages[config[KEY]], Store(store_root))})


def run_attempt(config: Mapping[str, Any], trial: TrialStage, store: Store) -> str:
    """One attempt at a stage in this process: how it ended."""
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
            _reset_process()
            work = _work(stage.spec.work)
            attempt.finish(work(stage.spec, attempt, _artifacts(trial, store)))
    except Exception:
        return "failed"  # with its reason in the store, where `with attempt` has put it
    return "done"


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


def _work(name: str) -> Callable[..., dict[str, Any]]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


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
