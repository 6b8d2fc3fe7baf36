"""What runs in a Ray Tune trial: one stage, from taking its lease to DONE.

If the stage itself fails, the store records it, and the trial reports the reason and ends normally:
Tune retries only a process that died. Actors are reused, so the global state that a stage may leave
behind is reset before the next one. Several workers run in processes of their own; if some die, the
trial itself begins another attempt, so that Tune need not start a new trial.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.orchestration.drivers import stop_request
from fope_lab.planning.forecast import workload_of
from fope_lab.processor import processor
from fope_lab.provenance.checkout import Checkout, package_versions
from fope_lab.provenance.source import source_of
from fope_lab.stages import TrainingConfig
from fope_lab.stages.base import load_function
from fope_lab.store import (
    Attempt,
    LeaseLostError,
    StageDoneError,
    StageFolder,
    StageState,
    StageStoppedError,
    Status,
    Store,
    StoreError,
)
from fope_lab.store.attempts import Ending, LeaseHeldError
from fope_lab.store.checkpoint import (
    changed_since_written,
    damaged_files,
    forget_digests,
    require_intact,
)
from fope_lab.store.records import first_line
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.made_by import modules_of, output_digest
from trainers.distributed import WorkersLostError, run_workers, with_size
from trainers.measures import Execution, SystemMonitor, execution_here

KEY, OWNER, SUPERSEDE = "key", "owner", "supersede"
"""The keys of a trial's configuration."""
STATUS, REASON = "status", "reason"
"""The keys of a trial's report."""
WORKERS_RETRIES = 3
"""How often a trial tries a stage again whose workers died, each time from its last checkpoint."""
PROCESS_RETRIES = 3
"""How often Tune starts a trial again whose process died. So a stage gets at most 16 attempts."""


def run_stage(
    config: Mapping[str, Any],
    *,
    stages: Mapping[str, Stage],
    store_root: str,
    checkout: Checkout | None,
    code: Mapping[str, str],
) -> None:
    """Run the stage `config["key"]` as a Tune function; report its status, and why it failed.

    `checkout` is that of the driver, whose code all nodes run, and `code` the digests of its files
    when the run began.
    """
    from ray import tune

    try:
        state = run_until_ended(config, stages, Store.create(store_root), checkout, code)
    except StoreError as error:  # this node can't write to the store
        state = StageState(Status.FAILED, str(error))
    tune.report({STATUS: str(state.status), REASON: state.reason})


def run_until_ended(
    config: Mapping[str, Any],
    stages: Mapping[str, Stage],
    store: Store,
    checkout: Checkout | None = None,
    code: Mapping[str, str] | None = None,
) -> StageState:
    """Run a stage, and again if its workers die; returns the state after the last attempt.

    `stages` holds the stage and its parents by key. The status is DONE, FAILED with the reason,
    RUNNING if another driver holds the stage, or took it over, WAITING if a parent was damaged and
    must be re-run first, or INTERRUPTED if the driver asks its stages to stop. A stage fails if its
    code is no longer that of `code`, the digests of files by path: nobody knows which of the two
    this process has imported.
    """
    stop = stop_request(store, config[OWNER])
    state = StageState(Status.INTERRUPTED)
    for retries in range(WORKERS_RETRIES, -1, -1):
        if stop.is_made():
            break
        state = _attempt(config, stages, store, checkout, code or {}, may_retry=retries > 0)
        if state.status is not Status.INTERRUPTED:
            break
    return state


def _attempt(
    config: Mapping[str, Any],
    stages: Mapping[str, Stage],
    store: Store,
    checkout: Checkout | None,
    code: Mapping[str, str],
    *,
    may_retry: bool,
) -> StageState:
    """Make one attempt at a stage; returns the state that it leaves.

    If workers are lost, the attempt is interrupted, or failed if nothing tries it again. It is
    interrupted, too, if the driver asks its stages to stop.
    """
    stage = stages[config[KEY]]
    folder = store.folder(stage.kind, stage.key)
    try:
        forget_digests()
        made_by = maker(stage, store, checkout, code)
        read = _digests(stage, stages, store)
        _set_aside_if_parents_changed(folder, read, config)
        stop = stop_request(store, config[OWNER])
        with folder.begin(
            config[OWNER], _request(stage), config[SUPERSEDE], made_by, read, stop.path
        ) as attempt:
            return _end(stage, stages, attempt, read, store, config, may_retry=may_retry)
    except (LeaseHeldError, LeaseLostError):
        return StageState(Status.RUNNING, elsewhere=True)
    except StageDoneError:
        return StageState(Status.DONE)
    except Exception as error:
        # The store has the whole error, unless the disk is full: so the trial reports it, too.
        room = f"; {MAKE_ROOM}" if isinstance(error, OSError) and is_full_disk(error) else ""
        return StageState(Status.FAILED, first_line(error) + room)


def _end(
    stage: Stage,
    stages: Mapping[str, Stage],
    attempt: Attempt,
    read: Mapping[str, str],
    store: Store,
    config: Mapping[str, Any],
    *,
    may_retry: bool,
) -> StageState:
    """Do the work of an attempt that has begun, and record how it ended; returns that state.

    `read` has the digest of what the stage reads of each parent, by role. Raises what the work
    raises, unless the stage can go on from there.
    """
    try:
        parents = _artifacts(stage, stages, store, config[OWNER])
        result, execution = _work(stage, attempt, parents, store, config)
        forget_digests()
        _artifacts(stage, stages, store, config[OWNER])  # tokens are read all the time
    except ParentLostError as error:
        attempt.interrupt(error)
        if isinstance(error, ParentDamagedError):
            folder = store.folder(stage.kind, stage.key)
            folder.set_aside(config[OWNER], "it may have read damaged bytes of a parent")
        return StageState(Status.WAITING, first_line(error))
    except StageStoppedError as error:
        attempt.release(Ending.INTERRUPTED)
        return StageState(Status.INTERRUPTED, first_line(error))
    except WorkersLostError as error:
        if not may_retry:
            raise
        attempt.interrupt(error)
        return StageState(Status.INTERRUPTED, first_line(error))
    attempt.finish(result, execution_record(stage, result, execution), read)
    return StageState(Status.DONE)


def _set_aside_if_parents_changed(
    folder: StageFolder, read: Mapping[str, str], config: Mapping[str, Any]
) -> None:
    """Move an unfinished stage's output away if a parent has other output by now than it read: to
    go on from its checkpoint would mix the two."""
    before = folder.parents_of_checkpoint() or {}
    if not folder.is_done() and any(read.get(role, was) != was for role, was in before.items()):
        reason = "a parent was re-run with another output since the last checkpoint"
        folder.set_aside(config[OWNER], reason, config[SUPERSEDE])


def _work(
    stage: Stage,
    attempt: Attempt,
    parents: Mapping[str, Path],
    store: Store,
    config: Mapping[str, Any],
) -> tuple[dict[str, Any], Execution]:
    """Do the stage's work, in this process or with several workers; returns its result, and what
    it ran on."""
    if stage.spec.resources.size > 1:
        return run_workers(
            stage.spec,
            attempt,
            parents,
            is_retry=_is_retry(attempt),
            scratch=store.driver(config[OWNER]),
        )
    _reset_process(stage.spec.resources.threads)
    if isinstance(stage.spec, TrainingConfig):
        attempt.writer.observe = SystemMonitor().measure_if_due
    result: dict[str, Any] = load_function(stage.spec.entry_point)(
        stage.spec, attempt.writer, parents
    )
    return result, execution_here(stage.spec.resources)


def _is_retry(attempt: Attempt) -> bool:
    """Whether the same driver made the attempt before, which died or lost its workers."""
    attempts = attempt.lease.attempts
    now, before = attempts.record(attempt.lease.token), attempts.record(attempt.lease.token - 1)
    if now is None or before is None or "set_aside" in before.details:
        return False
    return now.owner == before.owner


def _request(stage: Stage) -> dict[str, Any]:
    """What the store records of a stage before it runs."""
    return {
        "key": stage.key,
        "kind": stage.kind,
        "version": stage.spec.version,
        "config": stage.config,
        "parents": {**stage.parents, **stage.checkpoints},
    }


class ParentLostError(StoreError):
    """A parent's output is gone."""


class ParentDamagedError(ParentLostError):
    """A parent's output was damaged, and has been moved away."""


def _artifacts(
    stage: Stage, stages: Mapping[str, Stage], store: Store, owner: str
) -> dict[str, Path]:
    """The checkpoint folder of each parent, by its role; its bytes are those that were written.

    Raises ParentLostError for a parent that must be re-run, and StoreError for a damaged checkpoint
    that no stage made.
    """
    folders = {role: Path(path) for role, path in stage.checkpoints.items()}
    for path in folders.values():
        require_intact(path)
    for role, key in stage.parents.items():
        folder = store.folder(stages[key].kind, key)
        finished_by, checkpoint = folder.finished_by(), folder.final_checkpoint()
        if checkpoint is None:
            raise ParentLostError(f"{stages[key].label}: its checkpoint is gone from {folder.path}")
        if damaged := damaged_files(checkpoint.path):
            reason = changed_since_written(damaged)
            try:
                aside = folder.set_aside(owner, reason, finished_by=finished_by)
            except LeaseHeldError:
                aside = None
            moved = "" if aside is None else f"; its previous output is in {aside}"
            raise ParentDamagedError(f"{stages[key].label}: {reason}{moved}")
        folders[role] = checkpoint.path
    return folders


def _digests(stage: Stage, stages: Mapping[str, Stage], store: Store) -> dict[str, str]:
    """The digest of what the stage reads of each parent that another stage left, by role."""
    folders = {r: store.folder(stages[key].kind, key) for r, key in stage.parents.items()}
    return {role: digest for role, f in folders.items() if (digest := output_digest(f))}


def maker(
    stage: Stage, store: Store, checkout: Checkout | None, code: Mapping[str, str]
) -> dict[str, Any]:
    """What produces an attempt's numbers: commit, versions, device, and the code that it runs.

    Raises StoreError if the code is no longer that of `code`.
    """
    source = source_of(modules_of(stage))
    changed = [path for path, file in source.items() if code.get(path, file.code) != file.code]
    if changed:
        names = ", ".join(Path(path).name for path in changed[:3])
        raise StoreError(f"{names} changed while this run was at work; run the same command again")
    return {
        "commit": checkout and checkout.commit,
        "clean": checkout and checkout.clean,
        "versions": package_versions(),
        "device": _device(stage),
        "source": store.keep_source(source),
    }


def execution_record(
    stage: Stage, result: Mapping[str, Any], execution: Execution
) -> dict[str, Any]:
    """What a stage has just run on, and its work there.

    The work of a training that stopped early is that of the steps that it took, and the work of
    fewer workers than planned is what each of them did.
    """
    ran = replace(stage, spec=with_size(stage.spec, execution.workers))
    work = workload_of(ran)
    if isinstance(ran.spec, TrainingConfig):
        planned = ran.spec.train.steps
        work = work.part(result["recorded"].get("steps", planned) / planned)
    planned_workers = stage.spec.resources.size
    return {**asdict(execution), "planned_workers": planned_workers, "work": asdict(work)}


def _device(stage: Stage) -> str | None:
    """What this process computes with: its GPU or its processor. None for several workers with
    GPUs, of which the trial sees none."""
    resources = stage.spec.resources
    if not resources.gpus:
        return processor()
    return execution_here(resources).device if resources.size == 1 else None


def _reset_process(threads: int) -> None:
    """Reset the global state of torch that an earlier stage in this process may have changed, and
    have torch compute with so many threads."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
