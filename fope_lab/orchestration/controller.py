"""The controller: one `Tuner.fit()` over the union of the graphs of all sweeps given.

Tune asks StageSearcher.suggest for slots. Each is a trial that does one stage after another by
run_slot (trial.py), which calls the entry point of the stage's kind, such as trainers.stage:run.
What run_slot reports goes to StageSearcher.on_trial_result, which gives the slot its next stage.

To resume is to run again: unfinished stages go on from their last checkpoints. `Tuner.restore`
would go back to states older than the store's. This imports ray: call prepare_environment before.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune
from ray.experimental import internal_kv
from ray.tune.execution import class_cache

from fope_lab.config.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.config.plugins import WithPlugins
from fope_lab.orchestration.cluster_address import LOCAL, RAY_DEFAULTS, ClusterError
from fope_lab.orchestration.drivers import ray_folder, scratch_folder, stop_request
from fope_lab.orchestration.ending import Interruption, LastCheckpoints, Say, ray_starting
from fope_lab.orchestration.nodes import (
    ReadRoom,
    node_types,
    placement,
    require_nodes,
    seldom,
    this_machine,
)
from fope_lab.orchestration.ray_watch import GO_ON, ending_with_cluster, ending_with_own_ray
from fope_lab.orchestration.searcher import ReadWaits, StageSearcher
from fope_lab.orchestration.trial import (
    Order,
    order_place,
    run_slot,
)
from fope_lab.planning.schedule import Capacity, Demand, Lookahead, amounts
from fope_lab.store.attempts import Ending, driver_name
from fope_lab.store.checkout import Checkout
from fope_lab.store.records import StoreError, first_line
from fope_lab.store.root import Store
from fope_lab.store.source import source_of
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import modules_of
from trainers.distributed import free_reservations, is_lost_node

CLUSTER_LOOKAHEAD = Lookahead(stages=64, groups=4)
"""On a cluster that may grow: its autoscaler sees what waits."""
TOO_SLOW = "timed out during startup"
"""What Ray says of a start that it has given up."""


ReadStates = Callable[[], Mapping[str, StageState]]
"""Returns the state of every stage in this run, by key."""
Watch = Callable[[ReadStates, ReadRoom, ReadWaits], contextlib.AbstractContextManager[None]]
"""A context for the length of the run."""


def run_stages(
    stages: Sequence[Stage],
    store: Store,
    seconds: Mapping[str, float],
    *,
    address: str = LOCAL,
    watch: Watch = lambda *read: contextlib.nullcontext(),
    sweeps: Sequence[str] = (),
    say: Say = lambda line: None,
    needed: Callable[[Mapping[str, StageState]], Mapping[str, StageState]] = lambda states: states,
) -> Mapping[str, StageState]:
    """Run every stage that is not done in the store; returns the state of each stage by key, which
    run_sweeps.py prints.

    `stages` has parents before children. `seconds` has the plan's forecast of each stage by key:
    the order and the back-filling follow from it. `sweeps` are the names by which `fope-lab stop`
    finds this run, and `say` prints a line. `needed` is as in StageSearcher.

    Raises KeyboardInterrupt at a signal, after trainings have saved checkpoints, ResourcesError if
    a stage could never be placed, and ClusterError if no cluster is at `address`.
    """
    owner = driver_name()
    by_key = {stage.key: stage for stage in stages}
    free_leases = functools.partial(_free_leases, stages, store, owner)
    interruption = Interruption()
    with (
        contextlib.ExitStack() as end,
        scratch_folder(store, owner, sweeps) as scratch,
        ray_folder(scratch, address, say) as own,
        _ray(address, own.path, interruption),
        contextlib.ExitStack() as shown,
        interruption.noting(),  # again, because Ray has set handlers of its own
    ):
        end.callback(free_leases)  # once more, when all processes are gone
        waiting = [s for s in stages if not store.folder(s.kind, s.key).is_done()]
        if types := this_machine() if address == LOCAL else node_types():
            require_nodes(waiting, types)
        lookahead = Lookahead() if address == LOCAL else CLUSTER_LOOKAHEAD
        # Tune has a limit of its own, above ours: Capacity decides.
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(CLUSTER_LOOKAHEAD.stages)
        demands = {
            key: Demand(amounts(stage.spec.resources), seconds[key], stage.spec.resources.size)
            for key, stage in by_key.items()
        }
        capacity = Capacity(demands, seldom(ray.cluster_resources), lookahead)
        searcher = StageSearcher(
            stages, store, owner, capacity, seconds, _give, lambda: interruption.noted, needed
        )
        request = stop_request(store, owner)
        ending = LastCheckpoints(interruption, request, searcher.states, by_key, store, owner, say)

        ending_with_ray = (
            ending_with_own_ray(free_leases) if address == LOCAL else ending_with_cluster()
        )
        # It ends when signals interrupt again, since it tells MLflow; leases are freed before that.
        shown.enter_context(watch(searcher.states, ray.cluster_resources, searcher.waits))
        with contextlib.ExitStack() as tuned, ending_with_ray, _losses_told(), _secrets_kept():
            tuned.callback(free_leases)
            _tuner(stages, store, searcher, scratch, ending).fit()  # calls searcher.suggest
        own.has_failed = any(s.status is Status.FAILED for s in searcher.states().values())
        interruption.check()
    return searcher.states()


def _tuner(
    stages: Sequence[Stage],
    store: Store,
    searcher: StageSearcher,
    scratch: Path,
    ending: LastCheckpoints,
) -> tune.Tuner:
    driver_node = ray.util.get_node_ip_address()
    modules = {name for stage in stages for name in modules_of(stage)}
    trainable = tune.with_resources(
        tune.with_parameters(
            run_slot,
            store_root=str(store),
            checkout=Checkout.current(),
            code={path: file.code for path, file in source_of(modules).items()},
        ),
        lambda config: placement(config, driver_node),
    )
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="run",
            storage_path=str(scratch),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=-1),
            stop=_AllEnded(searcher),
            callbacks=[_Callback(searcher, ending, store.driver(ending.owner))],
        ),
    )


def _give(trial_id: str, order: Order | None) -> None:
    """Leave a trial its next order in Ray's key-value store, or none, which ends it."""
    if order is None:
        internal_kv._internal_kv_del(order_place(trial_id))
    else:
        content = pickle.dumps(WithPlugins(order))
        internal_kv._internal_kv_put(order_place(trial_id), content, overwrite=True)


@contextlib.contextmanager
def _ray(address: str, folder: Path | None, interruption: Interruption) -> Iterator[None]:
    """Ray for the length of a run, silent unless something is wrong. `folder` is for the files of a
    Ray of our own."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    # On a full disk it prints a traceback. Nobody reads the state that Tune saves.
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)
    logging.getLogger("ray.tune.execution.tune_controller").addFilter(_not_a_death)
    os.environ["OMP_NUM_THREADS"] = "1"  # two threads a trial are 6–10 times slower than one
    try:
        try:
            with ray_starting(interruption):
                _started(address, folder, interruption)
        except Exception as error:  # Ray raises plain ones, too
            where = "here" if address == LOCAL else f"at {address}"
            raise ClusterError(f"no Ray cluster {where}: {first_line(error)}") from error
        yield
    finally:
        ray.shutdown()


def _started(address: str, folder: Path | None, interruption: Interruption) -> None:
    """Start or join Ray. It opens its own folder to everybody, but not the one around it. It gives
    up a start after a fixed 30 s, which a busy machine may exceed; so a Ray of our own gets a
    second try."""
    environment = {"OMP_NUM_THREADS": "1", **RAY_DEFAULTS}
    own = {"include_dashboard": False, "_temp_dir": str(folder / "r")} if folder is not None else {}
    before = psutil.Process().children(recursive=True)
    tries = 2 if own else 1
    while True:
        tries -= 1
        try:
            ray.init(
                address=address,
                logging_level="ERROR",
                log_to_driver=False,
                runtime_env={"env_vars": environment},
                **own,
            )
            return
        except Exception as error:
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process not in before:
                        process.kill()  # what a failed start leaves would outlive this process
            if not tries or TOO_SLOW not in str(error) or interruption.noted:
                raise


def _not_a_death(record: logging.LogRecord) -> bool:
    """Whether Tune logs anything but the death of a process, with a traceback of Ray's own."""
    return not (record.exc_info and isinstance(record.exc_info[1], ray.exceptions.RayActorError))


class _AllEnded(tune.Stopper):
    """Ends the run when no stage is left: slots may still wait for room."""

    def __init__(self, searcher: StageSearcher) -> None:
        self._searcher = searcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._searcher.is_over()

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}


class _Callback(tune.Callback):
    """Ends the run after a signal, kills what shows no sign of life, and informs the searcher of
    processes that start and die."""

    def __init__(self, searcher: StageSearcher, ending: LastCheckpoints, scratch: Path) -> None:
        self._searcher, self._ending, self._scratch = searcher, ending, scratch

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Raises KeyboardInterrupt when the run can end: no other way out ends the trials, too."""
        self._ending.look()
        silent = self._searcher.silent()
        for trial in trials if silent else ():
            if (stage := silent.get(trial.trial_id)) is not None:
                ray.kill(trial.temporary_state.ray_actor)
                free_reservations(stage.kind, stage.key, self._scratch)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note that the process of a slot is there."""
        self._searcher.on_trial_start(trial.trial_id)

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Note that the process of a slot died, and that Tune starts another one."""
        error = trial.get_pickled_error()
        self._searcher.note_death(trial.trial_id, lost_node=is_lost_node(error))

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}


@contextlib.contextmanager
def _secrets_kept() -> Iterator[None]:
    """Keep Tune from giving the keys of AWS to trials by Ray, which would write them into a log.
    A trial has the environment of its node."""
    forwarded = class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.ENV_VARS_TO_PROPAGATE = {n for n in forwarded if not n.startswith("AWS_")}
    try:
        yield
    finally:
        class_cache.ENV_VARS_TO_PROPAGATE = forwarded


@contextlib.contextmanager
def _losses_told() -> Iterator[None]:
    """Raises ClusterError if Ray ends during a run, and StoreError for a full disk."""
    try:
        yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise ClusterError(f"Ray ended during the run: {first_line(error)}; {GO_ON}") from error
    except Exception as error:
        if is_full_disk(error):
            text = f"no space left on the disk: {first_line(error)}; {MAKE_ROOM}"
            raise StoreError(text) from error
        raise


def _free_leases(stages: Sequence[Stage], store: Store, owner: str) -> None:
    """Free what this driver holds: the next run need not wait until it goes stale."""
    for stage in stages:
        attempts = store.folder(stage.kind, stage.key).attempts
        newest = attempts.newest()
        if newest is not None and newest.owner == owner and newest.end is None:
            with contextlib.suppress(OSError):  # on a full disk, the lease goes stale
                attempts.end(newest.token, Ending.INTERRUPTED)
