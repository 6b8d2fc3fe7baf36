"""What runs in a Ray Tune trial: a slot, which does one stage after another, each from taking its
lease to DONE.

StageSearcher (searcher.py) leaves the order for each stage in Ray's key-value store, as Tune itself
does with what a trial runs. If a stage fails, the store records it, and the slot reports the reason
and goes on: Tune retries only a process that died. So global state is reset before each stage. If
some of several workers die, the slot itself begins another attempt.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.config.plugins import WithPlugins
from fope_lab.config.processor import processor
from fope_lab.config.roles import MODEL
from fope_lab.orchestration.drivers import stop_request
from fope_lab.planning.forecast import workload_of
from fope_lab.stages.base import load_function
from fope_lab.stages.training import TrainingConfig
from fope_lab.store.attempt import Attempt
from fope_lab.store.attempts import Ending, LeaseHeldError
from fope_lab.store.checkout import Checkout, package_versions
from fope_lab.store.checkpoint import (
    changed_since_written,
    damaged_files,
    forget_digests,
    require_intact,
)
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import StageStoppedError
from fope_lab.store.lineage import LINEAGE, recorded_lineage
from fope_lab.store.records import LeaseLostError, StageDoneError, StoreError, first_line
from fope_lab.store.root import Store
from fope_lab.store.source import source_of
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import modules_of, output_digest
from trainers.distributed import WorkersLostError, run_workers, with_size
from trainers.measures import Execution, SystemMonitor, execution_here

SLOT, WORKERS = "slot", "workers"
"""The keys of a trial's configuration: what the slot occupies, and how many workers it is for."""
STATUS, REASON = "status", "reason"
"""The keys of a trial's report on a stage."""
STARTED: dict[str, str] = {}
"""A trial's first report, of no stage: it has loaded torch."""
WORKERS_RETRIES = 3
"""How often a slot tries a stage again whose workers died, each time from its last checkpoint."""
PROCESS_RETRIES = 3
"""How often a stage is tried again whose process died."""
NODE_LOSSES = 20
"""How often a stage may lose its node, which costs none of these tries."""


@dataclass(frozen=True)
class Order:
    """A stage to do on behalf of the driver `owner`; `stages` has it and its parents by key.

    `supersede` is the token of an attempt at it that the driver has watched go stale.
    """

    key: str
    stages: Mapping[str, Stage]
    owner: str
    supersede: int | None = None


def order_place(trial_id: str) -> bytes:
    """The key under which Ray has the next order of a trial."""
    return f"fope-lab/{trial_id}".encode()


def run_slot(
    config: Mapping[str, Any],
    *,
    store_root: str,
    checkout: Checkout | None,
    code: Mapping[str, str],
) -> None:
    """Do what the searcher orders as a Tune function, and report how each stage ended.

    `checkout` is the driver's, whose code all nodes run, and `code` has the digests of its files
    when the run began. StageSearcher.on_trial_result gets the reports. What the store says of a
    failure comes first. The first report, STARTED, asks for the first stage.
    """
    import torch  # noqa: F401
    from ray import tune
    from ray.experimental import internal_kv

    place = order_place(tune.get_context().get_trial_id())
    tune.report(STARTED)
    while (order := internal_kv._internal_kv_get(place)) is not None:
        try:  # a plug-in may raise, and this node may be unable to write to the store
            work: WithPlugins[Order] = pickle.loads(order)
            state = run_until_ended(work.value, _store(store_root), checkout, code)
        except Exception as error:
            state = StageState(Status.FAILED, first_line(error))
        tune.report({STATUS: str(state.status), REASON: state.reason})


_store = functools.cache(Store.create)
"""A store that this process has found to be writable, once for all its stages."""


def run_until_ended(
    order: Order,
    store: Store,
    checkout: Checkout | None = None,
    code: Mapping[str, str] | None = None,
) -> StageState:
    """Do a stage, and again if its workers die; returns the state after the last attempt.

    The status is DONE, FAILED with the reason, RUNNING if another driver has the stage, WAITING if
    a parent was damaged and must be re-run first, or INTERRUPTED if the driver asks its stages to
    stop.
    """
    stop = stop_request(store, order.owner)
    work = _StageWork(order, store, checkout, code or {})
    state = StageState(Status.INTERRUPTED)
    while state.status is Status.INTERRUPTED and not stop.is_made():
        state = work.attempt()
    return state


def request_of(stage: Stage, lineage: Sequence[str] = ()) -> dict[str, Any]:
    """What the store records of a stage before it runs."""
    return {
        "key": stage.key,
        "kind": stage.kind,
        "version": stage.spec.version,
        "config": stage.config,
        "parents": {**stage.parents, **stage.checkpoints},
        LINEAGE: list(lineage),
    }


class ParentLostError(StoreError):
    """A parent's output is gone."""


class ParentDamagedError(ParentLostError):
    """A parent's output was damaged, and has been moved away."""


@dataclass(frozen=True)
class _StageWork:
    order: Order
    store: Store
    checkout: Checkout | None
    code: Mapping[str, str]
    lost: Counter[bool] = field(default_factory=Counter)
    """How often workers died, by whether that was with their node."""

    @property
    def stage(self) -> Stage:
        return self.order.stages[self.order.key]

    def attempt(self) -> StageState:
        """Make one attempt; returns the state that it leaves: INTERRUPTED if workers are lost, and
        there may be another one."""
        stage, folder = self.stage, self._folder(self.stage)
        before = folder.attempts.newest_token()
        try:
            forget_digests()
            made_by = self._made_by()
            read = {
                role: digest
                for role, key in stage.parents.items()
                if (digest := output_digest(self._folder(self.order.stages[key])))
            }
            self._set_aside_if_parents_changed(folder, read)
            newest = folder.attempts.newest()
            is_retry = (  # this driver's last attempt died, or lost its workers
                newest is not None
                and newest.owner == self.order.owner
                and "set_aside" not in newest.details
            )
            stop = stop_request(self.store, self.order.owner).path
            lineage = recorded_lineage(self._model(), self.store.root)
            with folder.begin(
                self.order.owner,
                request_of(stage, lineage),
                self.order.supersede,
                made_by,
                read,
                stop,
            ) as attempt:
                return self._run(attempt, read, is_retry=is_retry)
        except (LeaseHeldError, LeaseLostError):
            return StageState(Status.RUNNING, elsewhere=True)
        except StageDoneError:
            return StageState(Status.DONE)
        except Exception as error:
            # Leaving `begin` has recorded it, unless the disk is full: see StageSearcher._failed. A
            # bug before that is recorded here, with its traceback.
            is_bug = not isinstance(error, StoreError | OSError)
            if is_bug and folder.attempts.newest_token() == before:
                with contextlib.suppress(Exception):
                    request, supersede = request_of(stage), self.order.supersede
                    folder.begin(self.order.owner, request, supersede).fail(error)
            room = f"; {MAKE_ROOM}" if isinstance(error, OSError) and is_full_disk(error) else ""
            return StageState(Status.FAILED, first_line(error) + room)

    def _run(self, attempt: Attempt, read: Mapping[str, str], *, is_retry: bool) -> StageState:
        """Do the work of an attempt that has begun; raises what ends it for good."""
        try:
            result, execution = self._work(attempt, self._parents(), is_retry=is_retry)
            forget_digests()
            self._parents()  # tokens are read all the time
        except ParentLostError as error:
            attempt.interrupt(error)
            if isinstance(error, ParentDamagedError):
                aside = "it may have read damaged bytes of a parent"
                self._folder(self.stage).set_aside(self.order.owner, aside)
            return StageState(Status.WAITING, first_line(error))
        except StageStoppedError as error:
            attempt.release(Ending.INTERRUPTED)
            return StageState(Status.INTERRUPTED, first_line(error))
        except WorkersLostError as error:
            self.lost[error.lost_node] += 1
            most = NODE_LOSSES if error.lost_node else WORKERS_RETRIES
            if self.lost[error.lost_node] > most:
                raise
            attempt.interrupt(error)
            return StageState(Status.INTERRUPTED, first_line(error))
        attempt.finish(result, execution_record(self.stage, result, execution), read)
        return StageState(Status.DONE)

    def _work(
        self, attempt: Attempt, parents: Mapping[str, Path], *, is_retry: bool
    ) -> tuple[dict[str, Any], Execution]:
        spec = self.stage.spec
        if spec.resources.size > 1:
            scratch = self.store.driver(self.order.owner)
            return run_workers(spec, attempt, parents, is_retry=is_retry, scratch=scratch)
        _reset_process(spec.resources.threads)
        if isinstance(spec, TrainingConfig):
            attempt.writer.observe = SystemMonitor().measure_if_due
        # `run` of trainers/stage.py for a training, of evaluation/context.py for an evaluation.
        result: dict[str, Any] = load_function(spec.entry_point)(spec, attempt.writer, parents)
        return result, execution_here(spec.resources)

    def _model(self) -> StageFolder | None:
        """The folder of the stage whose model this one reads, if a stage made it."""
        if MODEL in self.stage.parents:
            return self._folder(self.order.stages[self.stage.parents[MODEL]])
        checkpoint = self.stage.checkpoints.get(MODEL)
        return StageFolder.of_checkpoint(Path(checkpoint)) if checkpoint else None

    def _set_aside_if_parents_changed(self, folder: StageFolder, read: Mapping[str, str]) -> None:
        """Move unfinished output away if a parent has other output by now than it read: to go on
        from its checkpoint would mix the two."""
        before = folder.parents_of_checkpoint() or {}
        if not folder.is_done() and any(read.get(role, was) != was for role, was in before.items()):
            reason = "a parent was re-run with another output since the last checkpoint"
            folder.set_aside(self.order.owner, reason, self.order.supersede)

    def _parents(self) -> dict[str, Path]:
        """The checkpoint folder of each parent by its role, with the bytes that were written."""
        folders = {role: Path(path) for role, path in self.stage.checkpoints.items()}
        for path in folders.values():
            require_intact(path)
        for role, key in self.stage.parents.items():
            parent, folder = self.order.stages[key], self._folder(self.order.stages[key])
            finished_by, checkpoint = folder.finished_by(), folder.final_checkpoint()
            if checkpoint is None:
                raise ParentLostError(f"{parent.label}: its checkpoint is gone from {folder.path}")
            if damaged := damaged_files(checkpoint.path):
                reason, aside = changed_since_written(damaged), None
                with contextlib.suppress(LeaseHeldError):  # somebody re-runs it already
                    aside = folder.set_aside(self.order.owner, reason, finished_by=finished_by)
                moved = "" if aside is None else f"; its previous output is in {aside}"
                raise ParentDamagedError(f"{parent.label}: {reason}{moved}")
            folders[role] = checkpoint.path
        return folders

    def _made_by(self) -> dict[str, Any]:
        """What produces the numbers: commit, versions, device, and the code of this process."""
        source, resources = source_of(modules_of(self.stage)), self.stage.spec.resources
        changed = [p for p, file in source.items() if self.code.get(p, file.code) != file.code]
        if changed:  # nobody knows which of the two this process has imported
            names = ", ".join(Path(path).name for path in changed[:3])
            raise StoreError(
                f"{names} changed while this run was at work; run the same command again"
            )
        device = None if resources.gpus else processor()
        if resources.gpus and resources.size == 1:  # of several workers' GPUs, the trial sees none
            device = execution_here(resources).device
        return {
            "commit": self.checkout and self.checkout.commit,
            "clean": self.checkout and self.checkout.clean,
            "versions": package_versions(),
            "device": device,
            "source": self.store.keep_source(source),
        }

    def _folder(self, stage: Stage) -> StageFolder:
        return self.store.folder(stage.kind, stage.key)


def execution_record(
    stage: Stage, result: Mapping[str, Any], execution: Execution
) -> dict[str, Any]:
    """What a stage has just run on, and what each of its workers did: a training that stopped early
    the steps that it took."""
    ran = replace(stage, spec=with_size(stage.spec, execution.workers))
    work = workload_of(ran)
    if isinstance(ran.spec, TrainingConfig):
        planned = ran.spec.train.steps
        work = work.part(result["recorded"].get("steps", planned) / planned)
    planned_workers = stage.spec.resources.size
    return {**asdict(execution), "planned_workers": planned_workers, "work": asdict(work)}


@functools.cache
def _freeze() -> None:
    """Leave the two million objects of torch and Ray out of collections: that takes 0.2 s each."""
    gc.freeze()


def _reset_process(threads: int) -> None:
    """Reset what an earlier stage in this process may have changed, and set torch's threads."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    if torch.are_deterministic_algorithms_enabled():  # to set it imports a second's worth
        torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    _freeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
