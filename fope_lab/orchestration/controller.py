"""The controller: one `Tuner.fit()` over the union of the graphs of all sweeps given.

Tune asks StageSearcher.suggest for a stage that is ready, and has a trial do it by run_stage
(trial.py), which calls the entry point of the stage's kind, such as trainers.stage:run. What
run_stage reports goes to StageSearcher.on_trial_complete.

To resume is to run again: unfinished stages go on from their last checkpoints. `Tuner.restore`
would go back to states older than the store's. This imports ray: call prepare_environment before.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune

from fope_lab.config.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.config.plugins import WithPlugins
from fope_lab.config.problems import UserError
from fope_lab.orchestration.cluster_address import LOCAL, RAY_DEFAULTS, ClusterError
from fope_lab.orchestration.drivers import (
    note_session,
    remove_scratch,
    scratch_folder,
    stop_request,
)
from fope_lab.orchestration.ending import Interruption, LastCheckpoints, Say, ray_starting
from fope_lab.orchestration.ray_watch import GO_ON, ending_with_cluster, ending_with_own_ray
from fope_lab.orchestration.searcher import StageSearcher
from fope_lab.orchestration.trial import KEY, PROCESS_RETRIES, run_stage
from fope_lab.planning.schedule import Amounts, Capacity, Demand, Lookahead, amounts
from fope_lab.stages.base import Resources
from fope_lab.store.attempts import Ending, driver_name
from fope_lab.store.checkout import Checkout
from fope_lab.store.records import StoreError, first_line
from fope_lab.store.root import Store
from fope_lab.store.source import source_of
from fope_lab.store.state import StageState
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import modules_of

CLUSTER_LOOKAHEAD = Lookahead(stages=64, groups=4)
"""On a cluster that may grow: its autoscaler sees what waits."""
TOO_SLOW = "timed out during startup"
"""What Ray says of a start that it has given up."""


class ResourcesError(UserError):
    """No node can ever hold a stage."""


def placement(resources: Resources, driver: str) -> tune.PlacementGroupFactory:
    """The placement group of a stage's trial; `driver` is the address of this process's node."""
    if resources.size > 1:
        # The workers have a group of their own (trainers/distributed.py). The trial only waits for
        # them, beside the driver, since it must outlive their nodes.
        return tune.PlacementGroupFactory([{f"node:{driver}": 0.001}])
    return tune.PlacementGroupFactory([amounts(resources)])


def require_nodes(stages: Sequence[Stage], available: Mapping[str, float]) -> None:
    """Raises ResourcesError naming every stage that asks for more than this machine has."""
    found = []
    for stage in stages:
        size = stage.spec.resources.size
        of_workers = f" for its {size} workers" if size > 1 else ""
        for name, amount in amounts(stage.spec.resources).items():
            if amount > (there := available.get(name, 0)):
                needs = f"{stage.label} needs {amount:g} {name}{of_workers}"
                found.append(f"{needs}, this machine has {there:g}")
    if found:
        raise ResourcesError("\n".join(found))


ReadStates = Callable[[], Mapping[str, StageState]]
"""Returns the state of every stage in this run, by key."""
ReadRoom = Callable[[], Amounts]
"""Returns what the cluster has of each resource."""
Watch = Callable[[ReadStates, ReadRoom], contextlib.AbstractContextManager[None]]
"""A context for the length of the run."""


def run_stages(
    stages: Sequence[Stage],
    store: Store,
    seconds: Mapping[str, float],
    *,
    address: str = LOCAL,
    watch: Watch = lambda read_states, read_room: contextlib.nullcontext(),
    sweeps: Sequence[str] = (),
    say: Say = lambda line: None,
    needed: Callable[[Mapping[str, StageState]], dict[str, StageState]] = dict,
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
        _ray(address, scratch, interruption),
        contextlib.ExitStack() as shown,
        interruption.noting(),  # again, because Ray has set handlers of its own
    ):
        end.callback(free_leases)  # once more, when all processes are gone
        waiting = [s for s in stages if not store.folder(s.kind, s.key).is_done()]
        lookahead = CLUSTER_LOOKAHEAD
        if address == LOCAL:
            require_nodes(waiting, ray.cluster_resources())
            lookahead = Lookahead()
        # Tune has a limit of its own, above ours: Capacity decides.
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(CLUSTER_LOOKAHEAD.stages)
        demands = {
            key: Demand(amounts(stage.spec.resources), seconds[key], stage.spec.resources.size)
            for key, stage in by_key.items()
        }
        capacity = Capacity(demands, ray.cluster_resources, lookahead)
        searcher = StageSearcher(
            stages, store, owner, capacity, seconds, lambda: interruption.noted, needed
        )
        request = stop_request(store, owner)
        ending = LastCheckpoints(interruption, request, searcher.states, by_key, store, owner, say)

        def clean_up() -> None:
            free_leases()
            remove_scratch(store, owner)

        ending_with_ray = (
            ending_with_own_ray(clean_up) if address == LOCAL else ending_with_cluster()
        )
        # It ends when signals interrupt again, since it tells MLflow; leases are freed before that.
        shown.enter_context(watch(searcher.states, ray.cluster_resources))
        with contextlib.ExitStack() as tuned, ending_with_ray, _losses_told():
            tuned.callback(free_leases)
            _tuner(by_key, store, searcher, scratch, ending).fit()  # calls searcher.suggest
        interruption.check()
    return searcher.states()


def _tuner(
    stages: Mapping[str, Stage],
    store: Store,
    searcher: StageSearcher,
    scratch: Path,
    ending: LastCheckpoints,
) -> tune.Tuner:
    driver_node = ray.util.get_node_ip_address()
    resources = {key: stage.spec.resources for key, stage in stages.items()}
    modules = {name for stage in stages.values() for name in modules_of(stage)}
    trainable = tune.with_resources(
        tune.with_parameters(
            run_stage,
            stages=WithPlugins(stages),
            store_root=str(store),
            checkout=Checkout.current(),
            code={path: file.code for path, file in source_of(modules).items()},
        ),
        lambda config: placement(resources[config[KEY]], driver_node),
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
            failure_config=tune.FailureConfig(max_failures=PROCESS_RETRIES),
            callbacks=[_Callback(searcher, ending)],
        ),
    )


@contextlib.contextmanager
def _ray(address: str, scratch: Path, interruption: Interruption) -> Iterator[None]:
    """Ray for the length of a run, silent unless something is wrong."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    # On a full disk it prints a traceback. Nobody reads the state that Tune saves.
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)
    logging.getLogger("ray.tune.execution.tune_controller").addFilter(_not_a_death)
    os.environ["OMP_NUM_THREADS"] = "1"  # two threads a trial are 6–10 times slower than one
    try:
        try:
            with ray_starting(interruption):
                context = _started(address, interruption)
        except Exception as error:  # Ray raises plain ones, too
            where = "here" if address == LOCAL else f"at {address}"
            raise ClusterError(f"no Ray cluster {where}: {first_line(error)}") from error
        if address == LOCAL:
            note_session(scratch, context.address_info["session_dir"])
        yield
    finally:
        ray.shutdown()


def _started(address: str, interruption: Interruption) -> Any:
    """Start or join Ray, and return what `ray.init` returns. Ray gives up a start after a fixed
    30 s, which a busy machine may exceed; so a Ray of our own gets a second try."""
    environment = {"OMP_NUM_THREADS": "1", **RAY_DEFAULTS}
    own = {"include_dashboard": False} if address == LOCAL else {}
    before = psutil.Process().children(recursive=True)
    tries = 2 if own else 1
    while True:
        tries -= 1
        try:
            return ray.init(
                address=address,
                logging_level="ERROR",
                log_to_driver=False,
                runtime_env={"env_vars": environment},
                **own,
            )
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


class _Callback(tune.Callback):
    """Ends the run after a signal, and informs the searcher of processes that died."""

    def __init__(self, searcher: StageSearcher, ending: LastCheckpoints) -> None:
        self._searcher, self._ending = searcher, ending

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Raises KeyboardInterrupt when the run can end: no other way out ends the trials, too."""
        self._ending.look()

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Note that the process of a stage died, and that Tune tries again."""
        self._searcher.note_death(trial.trial_id)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}


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
