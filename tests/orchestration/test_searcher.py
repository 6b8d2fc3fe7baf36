"""The DAG-aware searcher on graphs of its own, driven as Tune drives it, without a cluster."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.tune.search import Searcher

from fope_lab.orchestration import pace
from fope_lab.orchestration.searcher import StageSearcher
from fope_lab.orchestration.trial import (
    NODE_LOSSES,
    PROCESS_RETRIES,
    REASON,
    STARTED,
    STATUS,
    WORKERS,
    Order,
)
from fope_lab.planning.schedule import (
    Capacity,
    Demand,
    Lookahead,
    Machines,
    remaining_path,
    wall_time,
)
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.plan import output_digest

KIND = "pretrain"


@dataclass
class Node:
    """What the searcher needs to know of a stage."""

    key: str
    parents: dict[str, str] = field(default_factory=dict)
    kind: str = KIND
    workers: int = 1
    timeout: float | None = None

    @property
    def label(self) -> str:
        return self.key

    @property
    def section(self) -> str:
        return self.key

    @property
    def spec(self) -> Any:
        resources = SimpleNamespace(cpus=1, gpus=0, size=self.workers)
        return SimpleNamespace(resources=resources, timeout=self.timeout)


def searcher_of(
    nodes: list[Node],
    store: Store,
    slots: int,
    seconds: dict[str, float],
    clock: Callable[[], float] = lambda: 0.0,
    lookahead: Lookahead | None = None,
    watch: Callable[[], float] = time.monotonic,
    **options: Any,
) -> tuple[Any, dict[str, Order | None]]:
    """For a cluster of `slots` CPUs, of which each worker takes one; also the orders of trials."""
    orders: dict[str, Order | None] = {}
    demands = {
        node.key: Demand({"CPU": node.workers}, seconds[node.key], node.workers) for node in nodes
    }
    capacity = Capacity(demands, lambda: {"CPU": slots}, lookahead or Lookahead(), clock)
    given: Any = (nodes, store, "driver", capacity, seconds, orders.__setitem__)
    searcher: Any = StageSearcher(*given, clock=watch, **options)
    return searcher, orders


def finish(store: Store, key: str) -> None:
    with store.folder(KIND, key).begin("driver", {}) as attempt:
        attempt.finish({})


@st.composite
def graphs(draw: st.DrawFn, most: int = 1) -> tuple[list[Node], dict[str, float]]:
    """Layered graphs as sweeps make them: each stage has up to two earlier ones as parents, and up
    to `most` workers."""
    count = draw(st.integers(1, 14))
    nodes = []
    for i in range(count):
        chosen = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        parents = {f"role {p}": f"s{p}" for p in chosen}
        nodes.append(Node(f"s{i}", parents, workers=draw(st.integers(1, most))))
    seconds = {node.key: draw(st.floats(0.1, 10)) for node in nodes}
    return nodes, seconds


def simulate(
    nodes: list[Node],
    seconds: dict[str, float],
    slots: int,
    store: Store,
    estimates: dict[str, float] | None = None,
) -> tuple[float, list[str]]:
    """Run the searcher's decisions on a clock of our own: the makespan, and the order of starts.

    Fails if more is handed out than there is, or if nothing more happens.
    """
    now, order = 0.0, list[str]()
    running: list[tuple[float, str, str]] = []
    searcher, orders = searcher_of(nodes, store, slots, estimates or seconds, lambda: now)
    by_key = {node.key: node for node in nodes}

    def follow(trial: str) -> None:
        if (given := orders[trial]) is None:
            searcher.on_trial_complete(trial, {})
            return
        for parent in by_key[given.key].parents.values():
            assert store.folder(KIND, parent).is_done()
        order.append(given.key)
        heapq.heappush(running, (now + seconds[given.key], trial, given.key))
        assert sum(by_key[key].workers for _, _, key in running) <= slots

    for number in itertools.count():
        config = searcher.suggest(str(number))
        if config == Searcher.FINISHED:
            return now, order
        if config is not None:
            searcher.on_trial_result(str(number), STARTED)
            follow(str(number))
            continue
        assert running, "nothing runs, yet the searcher is not finished"
        now, trial, key = heapq.heappop(running)
        finish(store, key)
        searcher.on_trial_result(trial, {STATUS: "done"})
        follow(trial)
    raise AssertionError


@settings(max_examples=80, deadline=None)
@given(graph=graphs(most=4), more=st.integers(0, 3), skew=st.floats(0.01, 100))
def test_every_stage_runs_once_after_its_parents_and_waits_for_nothing(
    graph: tuple[list[Node], dict[str, float]],
    more: int,
    skew: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """While a stage waits for room, more than slots − workers are taken; while none waits, all
    that is ready runs, and with it the longest chain. However wrong the estimates are."""
    nodes, seconds = graph
    most = max(node.workers for node in nodes)
    slots = most + more
    store = Store(tmp_path_factory.mktemp("store"))
    estimates = {key: one * skew**i for i, (key, one) in enumerate(seconds.items())}
    makespan, order = simulate(nodes, seconds, slots, store, estimates)
    assert sorted(order) == sorted(node.key for node in nodes)
    work = sum(seconds[node.key] * node.workers for node in nodes)
    longest = max(remaining_path(nodes, seconds).values())  # type: ignore[arg-type]
    assert makespan <= longest + work / (slots - most + 1) + 1e-9


@settings(max_examples=50, deadline=None)
@given(graph=graphs(most=3), slots=st.integers(3, 6), speed=st.sampled_from([1.0, 1e-3]))
def test_the_plans_forecast_is_the_schedule_that_the_searcher_keeps(
    graph: tuple[list[Node], dict[str, float]],
    slots: int,
    speed: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Where all stages take as long as forecast, on a fast device as on a slow one."""
    nodes, seconds = graph
    # Times that differ in every sum, so that no two orders are equally urgent.
    seconds = {
        key: (value + 1e-3 * 2**-i) * speed for i, (key, value) in enumerate(seconds.items())
    }
    makespan, _ = simulate(nodes, seconds, slots, Store(tmp_path_factory.mktemp("store")))
    found = wall_time(nodes, seconds, Machines(slots, 0))  # type: ignore[arg-type]
    assert found.scheduled == pytest.approx(makespan, rel=1e-9)


@pytest.mark.parametrize("slots", [4, 8, 16])
def test_a_grid_of_large_trainings_and_small_evaluations_fills_the_cluster(
    slots: int, tmp_path: Path
) -> None:
    """Trainings by 1, 2 or 4 workers, each with an extension and four evaluations."""
    nodes, seconds = [], {}
    for i in range(12):
        for kind, parent, workers, long in [
            ("train", None, 2 ** (i % 3), 10.0 + i % 4),
            ("extend", "train", 2 ** (i % 3), 4.0),
            *[(f"evaluate {j}", "train" if j % 2 else "extend", 1, 1.0 + j / 2) for j in range(4)],
        ]:
            parents = {"from": f"{parent} {i}"} if parent else {}
            nodes.append(Node(f"{kind} {i}", parents, workers=workers))
            seconds[f"{kind} {i}"] = long
    makespan, _ = simulate(nodes, seconds, slots, Store(tmp_path))
    work = sum(seconds[node.key] * node.workers for node in nodes)
    longest = max(remaining_path(nodes, seconds).values())  # type: ignore[arg-type]
    assert makespan <= 1.1 * max(work / slots, longest)


class Run:
    """A searcher driven as Tune drives it: stages by key, each with the key of its parent."""

    def __init__(
        self,
        store: Store,
        stages: Mapping[str, str | None],
        slots: int = 2,
        seconds: dict[str, float] | None = None,
        **options: Any,
    ) -> None:
        nodes = [Node(key, {"from": of} if of else {}) for key, of in stages.items()]
        self._of(nodes, store, slots, seconds or dict.fromkeys(stages, 1.0), **options)

    def _of(self, nodes: list[Node], store: Store, *given: Any, **options: Any) -> None:
        self.store, self.trials, self.number = store, dict[str, str](), itertools.count()
        self.searcher, self.orders = searcher_of(nodes, store, *given, **options)

    @classmethod
    def of(cls, nodes: list[Node], store: Store, *given: Any, **options: Any) -> Run:
        run = cls.__new__(cls)
        run._of(nodes, store, *given, **options)
        return run

    def next(self) -> Any:
        """The key of the stage that a new slot gets now; else None, or FINISHED."""
        trial = f"t{next(self.number)}"
        config = self.searcher.suggest(trial)
        if not isinstance(config, dict):
            return config
        self.searcher.on_trial_start(trial)
        self.searcher.on_trial_result(trial, STARTED)
        return self._given(trial)

    def _given(self, trial: str) -> str | None:
        """The key of the stage that a slot has got; one that has none ends."""
        if (order := self.orders[trial]) is None:
            self.searcher.on_trial_complete(trial, {})
            return None
        self.trials[order.key] = trial
        return order.key

    def end(self, key: str, status: str = "done", reason: str = "") -> str | None:
        """Let a slot report on its stage, which it has finished if it is done; returns the key of
        the stage that it gets next, and ends a slot that gets none."""
        if status == "done" and not self.folder(key).is_done():
            finish(self.store, key)
        trial = self.trials[key]
        self.searcher.on_trial_result(trial, {STATUS: status, REASON: reason})
        return self._given(trial)

    def die(self, key: str, times: int = PROCESS_RETRIES + 1, *, lost_node: bool = False) -> None:
        """Let the process of a stage die."""
        for _ in range(times):
            trial = self.trials[key]
            self.searcher.note_death(trial, lost_node=lost_node)
            if self.state(key).status is Status.WAITING:
                self.searcher.on_trial_result(trial, STARTED)

    def folder(self, key: str) -> StageFolder:
        return self.store.folder(KIND, key)

    def begin_and_die(self, key: str) -> None:
        self.folder(key).begin("driver", {}).heartbeat.stop()

    def state(self, key: str) -> StageState:
        state: StageState = self.searcher.states()[key]
        return state

    def statuses(self) -> dict[str, Status]:
        return {key: state.status for key, state in self.searcher.states().items()}


@pytest.fixture(autouse=True)
def _many_slots_start_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every machine alike, and however short their stages are."""
    monkeypatch.setattr(pace, "cores", lambda: 64)
    monkeypatch.setattr(pace.Pace, "is_enough", lambda *found: False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_group_that_waits_is_overtaken_only_by_what_does_not_delay_it(store: Store) -> None:
    nodes = [Node("long"), Node("group", workers=2), Node("brief"), Node("slow")]
    seconds = {"long": 8.0, "group": 7.0, "brief": 3.0, "slow": 6.0}
    now = 0.0
    run = Run.of(nodes, store, 2, seconds, lambda: now)
    assert run.next() == "long"
    now = 2.5  # so that slow would end after long
    assert run.next() == "brief"
    assert run.end("brief") is None, "slow would delay the group"
    assert run.next() is None
    assert run.end("long") is None, "the group needs the room of its slot"
    assert [run.next(), run.next()] == ["group", None]
    assert run.end("group") is None
    assert run.next() == "slow"


def test_what_waits_for_an_autoscaler_is_handed_out_a_few_at_a_time(store: Store) -> None:
    nodes = [Node(f"group {i}", workers=4) for i in range(3)] + [Node(str(i)) for i in range(4)]
    seconds = {node.key: 9.0 if node.workers > 1 else 1.0 for node in nodes}
    lookahead = Lookahead(stages=3, groups=2)
    searcher, _ = searcher_of(nodes, store, 1, seconds, lookahead=lookahead)
    given = [searcher.suggest(f"t{i}") for i in range(4)]
    assert [one and one[WORKERS] for one in given] == [4, 4, None, None]
    singles = Run(store, dict.fromkeys("0123"), slots=1, lookahead=lookahead)
    assert [singles.next() is None for _ in range(4)] == [False] * 3 + [True]


def test_the_longest_remaining_path_goes_first(store: Store) -> None:
    nodes = [Node("short"), Node("long"), Node("after", {"from": "long"})]
    makespan, order = simulate(nodes, {"short": 5.0, "long": 1.0, "after": 9.0}, 1, store)
    assert order == ["long", "after", "short"]
    assert makespan == 15.0


def test_a_slot_that_starts_gets_what_is_most_urgent_then(store: Store) -> None:
    """And what it was asked for is done by a slot that was free before."""
    seconds = {"first": 1.0, "second": 2.0, "third": 3.0, "long": 9.0}
    stages = {"first": None, "second": None, "third": None, "long": "third"}
    run = Run(store, stages, seconds=seconds)
    assert run.next() == "third"
    assert run.searcher.suggest("starts") is not None, "for the second"
    assert run.searcher.suggest("too many") is None
    assert run.end("third") == "long"
    run.searcher.on_trial_result("starts", STARTED)
    assert run.orders["starts"].key == "second"  # type: ignore[union-attr]


def test_a_slot_does_one_stage_after_another_while_another_one_starts(store: Store) -> None:
    run = Run(store, dict.fromkeys("abcd"))
    assert run.next() == "a"
    assert run.searcher.suggest("starts") is not None
    assert [run.end("a"), run.end("b"), run.end("c"), run.end("d")] == ["b", "c", "d", None]
    assert run.next() == Searcher.FINISHED
    run.searcher.on_trial_result("starts", STARTED)
    assert run.orders["starts"] is None


def test_a_slot_is_asked_for_each_stage_that_is_ready_and_no_more(store: Store) -> None:
    run = Run(store, {"a": None, "b": None, "c": "a"}, slots=9)
    asked = [run.searcher.suggest(f"slot {i}") for i in range(4)]
    assert [one is None for one in asked] == [False, False, True, True]


def test_a_failed_stage_fails_its_descendants_and_nothing_else(store: Store) -> None:
    stages = {"a": None, "b": None, "a child": "a", "a grandchild": "a child", "b child": "b"}
    run = Run(store, stages, slots=1)
    assert run.next() == "a"
    with pytest.raises(RuntimeError), run.folder("a").begin("driver", {}):
        raise RuntimeError("no luck")
    assert run.end("a", "failed") == "b"
    assert run.end("b") == "b child"
    assert run.end("b child") is None
    assert run.next() == Searcher.FINISHED
    assert run.statuses() == {
        "a": Status.FAILED, "a child": Status.BLOCKED, "a grandchild": Status.BLOCKED,
        "b": Status.DONE, "b child": Status.DONE,
    }  # fmt: skip
    assert run.state("a").reason == "no luck"
    assert run.state("a grandchild").reason == "a failed"


def test_a_damaged_parent_is_re_run_before_its_child_and_not_for_ever(store: Store) -> None:
    finish(store, "a")
    run = Run(store, {"a": None, "b": "a"})

    def lose() -> str | None:
        run.folder("a").set_aside("driver", "model changed")
        return run.end("b", "waiting", "A: model changed")

    assert run.next() == "b"
    assert lose() == "a"
    assert run.next() is None
    assert run.end("a") == "b"
    again = dataclasses.replace(run.folder("a").state(), reason="A: model changed")
    assert run.state("a") == again
    assert lose() is None
    assert run.next() == Searcher.FINISHED
    assert run.statuses() == {"a": Status.FAILED, "b": Status.BLOCKED}
    assert run.state("a").reason == "damaged twice: A: model changed"


def test_two_children_of_a_damaged_parent_re_run_it_once(store: Store) -> None:
    finish(store, "a")
    run = Run(store, {"a": None, "b": "a", "c": "a"})
    assert {run.next(), run.next()} == {"b", "c"}
    run.folder("a").set_aside("driver", "model changed")
    assert run.end("b", "waiting", "A: model changed") == "a"
    assert run.end("c", "waiting", "A: its checkpoint is gone") is None
    assert run.next() is None
    assert {run.end("a"), run.next()} == {"b", "c"}
    assert run.state("a").reason == "A: model changed"


def train(store: Store, weights: str) -> None:
    """Finish a stage `a` that leaves these weights."""
    with store.folder(KIND, "a").begin("driver", {}) as attempt:
        attempt.writer.save_checkpoint(1, lambda path: (path / "x").write_text(weights) and None)
        attempt.finish({})


def read_parent(store: Store, key: str, parent: str) -> None:
    """Finish a stage that read the output of a parent, as a trial does."""
    read = output_digest(store.folder(KIND, parent))
    with store.folder(KIND, key).begin("driver", {}) as attempt:
        attempt.writer.save_checkpoint(1, lambda path: (path / "x").touch())
        attempt.finish({}, parents={} if read is None else {"from": read})


@pytest.mark.parametrize("weights", ["the weights", "other weights"])
def test_children_of_a_parent_that_was_re_run_are_kept_if_they_read_the_same(
    store: Store, weights: str
) -> None:
    train(store, "the weights")
    read_parent(store, "b", "a")
    read_parent(store, "c", "b")
    store.folder(KIND, "a").set_aside("driver", "its disk was lost")
    run = Run(store, {"a": None, "b": "a", "c": "b"})
    assert [run.next(), run.next()] == ["a", None]
    train(store, weights)
    other = weights == "other weights"
    assert run.end("a") == ("b" if other else None)
    if other:
        assert run.folder("b").state().reason == "to be re-run: b: its parent a was re-run"
        read_parent(store, "b", "a")  # its output is what it was
        assert run.end("b") is None
        assert run.state("b").reason == "b: its parent a was re-run"
    assert run.next() == Searcher.FINISHED


def test_a_stage_that_read_other_output_than_its_parent_has_is_run(tmp_path: Path) -> None:
    """As after a run that was killed between the two, or in a folder of another store."""
    store, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    train(store, "the weights")
    train(other, "other weights")
    read_parent(other, "b", "a")
    shutil.copytree(other.folder(KIND, "b").path, store.folder(KIND, "b").path)
    assert Run(store, {"a": None, "b": "a"}).next() == "b"
    assert store.folder(KIND, "b").state().reason == (
        "to be re-run: b: finished earlier, but a has other output now than it read"
    )


def test_what_the_store_holds_is_not_started(store: Store) -> None:
    finish(store, "a")
    run = Run(store, {"a": None, "b": "a"})
    assert [run.next(), run.next()] == ["b", None]
    assert run.state("a").reason == "cached"


def test_a_stage_of_another_driver_is_waited_for_and_then_taken_from_the_store(
    store: Store,
) -> None:
    run = Run(store, {"a": None, "b": "a"})
    with run.folder("a").begin("another driver", {}) as other:
        assert run.next() is None
        assert run.state("a").status is Status.RUNNING
        other.finish({})
    while (key := run.next()) is None:
        pass
    assert key == "b"
    assert run.state("a").status is Status.DONE


def test_a_trial_that_found_the_stage_held_gives_it_back(store: Store) -> None:
    run = Run(store, {"a": None})
    assert run.next() == "a"
    assert run.end("a", "running") == "a"


def test_a_stage_whose_process_died_is_failed_in_the_store_too(store: Store) -> None:
    """Its process died more often than Tune retries; no view may call it running any more."""
    run = Run(store, {"a": None, "b": "a"})
    run.next()
    run.begin_and_die("a")
    run.die("a", PROCESS_RETRIES)
    assert run.state("a") == StageState(Status.RUNNING, "its process died; try 4 of 4")
    run.die("a", 1)
    assert run.state("a") == run.folder("a").state()
    assert run.statuses() == {"a": Status.FAILED, "b": Status.BLOCKED}
    assert run.state("a").reason.startswith("its process died on every try, the last time on ")


def test_a_stage_that_another_driver_took_from_a_dead_process_is_left_to_it(store: Store) -> None:
    run = Run(store, {"a": None})
    run.next()
    run.begin_and_die("a")
    with run.folder("a").begin("another driver", {}, supersede=1):
        run.die("a", 1)
        assert run.orders[run.trials["a"]] is None
        assert run.state("a").elsewhere
    assert run.folder("a").attempts.record(1).end is None  # type: ignore[union-attr]


def test_a_stage_that_never_began_is_failed(store: Store) -> None:
    run = Run(store, {"a": None})
    run.next()
    run.die("a")
    assert run.state("a") == StageState(Status.FAILED, "its process died before it could begin")


def test_a_slot_whose_process_never_starts_fails_one_stage_and_another_slot_goes_on(
    store: Store,
) -> None:
    run = Run(store, {"a": None, "b": None})
    run.searcher.suggest("slot")
    for _ in range(PROCESS_RETRIES):
        run.searcher.note_death("slot")
        run.searcher.note_death("slot", lost_node=True)
    assert run.state("a").status is Status.WAITING
    run.searcher.note_death("slot")
    assert run.state("a") == StageState(Status.FAILED, "its process died before it could begin")
    run.searcher.on_trial_result("slot", STARTED)
    assert run.orders["slot"].key == "b"  # type: ignore[union-attr]


def test_a_lost_node_costs_no_try_and_a_stage_that_takes_every_node_with_it_is_given_up(
    store: Store,
) -> None:
    run = Run(store, {"a": None}, slots=1)
    run.next()
    run.die("a", NODE_LOSSES, lost_node=True)
    assert run.state("a").reason == f"its node was lost; time {NODE_LOSSES}"
    run.die("a", PROCESS_RETRIES)
    assert run.state("a").reason == f"its process died; try {PROCESS_RETRIES + 1} of 4"
    run.begin_and_die("a")
    run.die("a", 1, lost_node=True)
    assert run.state("a").status is Status.FAILED


def test_a_stage_without_progress_is_ended_after_its_timeout(store: Store) -> None:
    """Its slot does the next one, but only in another process. What tells of progress, has no
    timeout, or waits for its workers goes on."""
    now = 0.0
    nodes = [
        Node("hangs", timeout=2),
        Node("works", timeout=2),
        Node("is free"),
        Node("waits", workers=2, timeout=2),
    ]
    seconds = {node.key: 1.0 for node in nodes} | {"next": 0.5}
    run = Run.of([*nodes, Node("next")], store, 5, seconds, watch=lambda: now)
    assert [run.next() for _ in nodes] == [node.key for node in nodes]
    attempts = {node.key: run.folder(node.key).begin("driver", {}) for node in nodes}
    for step in range(13):
        now = 10.0 * step
        attempts["works"].writer.progress(step, 99, at_once=True)
        silent = run.searcher.silent()
        assert bool(silent) is (step == 12), now
    trial = run.trials["hangs"]
    assert {key: stage.key for key, stage in silent.items()} == {trial: "hangs"}
    failed = run.state("hangs")
    assert (failed.status, failed.reason) == (
        Status.FAILED, "no progress for 2 min, its timeout",
    )  # fmt: skip
    assert failed == run.folder("hangs").state()
    assert not run.searcher.silent()
    run.searcher.on_trial_result(trial, {STATUS: "failed"})  # it had just come to an end
    assert run.orders[trial] is None
    run.searcher.note_death(trial)
    assert run.state("hangs") == failed
    run.searcher.on_trial_result(trial, STARTED)
    assert run.orders[trial].key == "next"  # type: ignore[union-attr]
    for attempt in attempts.values():
        attempt.heartbeat.stop()


def test_what_slots_wait_for(store: Store) -> None:
    now = 5.0
    run = Run(store, {"a": None, "b": None}, watch=lambda: now)
    run.next()
    run.searcher.suggest("slot")
    now = 9.0
    assert run.searcher.waits() == [(Demand({"CPU": 1}, 1.0), 4.0)]
    run.searcher.on_trial_start("slot")
    assert not run.searcher.waits()
    run.searcher.note_death("slot")
    now = 10.0
    assert run.searcher.waits() == [(Demand({"CPU": 1}, 1.0), 1.0)]


def test_the_more_slots_have_started_the_more_start_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "cores", lambda: 2)
    now, names = 0.0, map(str, itertools.count())
    run = Run(store, dict.fromkeys(map(str, range(99))), slots=99, watch=lambda: now)

    def asked() -> list[str]:
        """The slots that start now."""
        given: list[str] = []
        while isinstance(run.searcher.suggest(name := next(names)), dict):
            given.append(name)
        return given

    slots, sizes = asked(), list[int]()
    for _ in range(4):
        sizes.append(len(slots))
        for slot in slots:
            run.searcher.on_trial_result(slot, STARTED)
        slots = asked()
    assert sizes == [2, 4, 8, 16]
    assert not asked()
    now = pace.START_SECONDS  # those that hang hold the others back no longer
    assert len(asked()) == 32


def test_slots_without_room_are_all_asked_for_so_that_an_autoscaler_sees_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "cores", lambda: 2)
    ahead = Lookahead(stages=20)
    run = Run(store, dict.fromkeys(map(str, range(99))), slots=1, lookahead=ahead)
    given = [run.searcher.suggest(str(number)) for number in range(30)]
    assert sum(isinstance(one, dict) for one in given) == 20


def test_a_reason_that_only_the_trial_knows_is_recorded_once_there_is_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full when the stage failed, so that the store calls it running."""
    folder, reason = store.folder(KIND, "a"), "the loss is nan"
    with pytest.raises(OSError, match="yesterday"), folder.begin("another driver", {}):
        raise OSError("yesterday")

    def failed(*, begins: bool = False) -> StageState:
        run = Run(store, {"a": None})
        run.next()
        if begins:
            run.begin_and_die("a")
        run.end("a", "failed", reason)
        return run.state("a")

    assert failed().reason == reason  # it could not even begin
    with monkeypatch.context() as full:
        full.setattr("fope_lab.store.attempts.Attempts.end", no_space)
        assert failed(begins=True).reason == reason
    assert folder.state().status is Status.RUNNING
    assert failed() == folder.state()
    assert (folder.state().status, folder.state().reason) == (Status.FAILED, reason)


def test_a_run_that_ends_gives_no_more_stages_and_blocks_none(store: Store) -> None:
    ending = [False]
    stages = {"a": None, "b": None, "c": None, "child": "a"}
    run = Run(store, stages, is_ending=lambda: ending[0])
    assert {run.next(), run.next()} == {"a", "b"}
    with run.folder("a").begin("driver", {}) as attempt:
        ending[0] = True
        attempt.writer.progress(3, 9)
    for key in "ab":
        assert run.end(key, "interrupted") is None
    # Tune would wait for a stage for ten minutes, and look at nothing else, if it got None.
    assert run.next() == Searcher.FINISHED
    waiting = dict.fromkeys(("b", "c", "child"), Status.WAITING)
    assert run.statuses() == {"a": Status.INTERRUPTED} | waiting
    assert run.state("a").reason == "stopped at step 3 of 9"


def test_a_trial_that_died_while_the_run_ends_is_not_waited_for(store: Store) -> None:
    """Its next process begins nothing, so that nobody ends its attempt."""
    run = Run(store, {"a": None})
    run.next()
    run.begin_and_die("a")
    run.end("a", "interrupted")
    assert run.state("a").status is Status.INTERRUPTED


def no_space(*_: object, **__: object) -> bool:
    raise OSError(28, "No space left on device")


def test_a_stage_whose_process_died_says_so_while_it_runs_again_and_when_it_is_done(
    store: Store,
) -> None:
    run = Run(store, {"a": None})
    run.next()
    run.searcher.note_death("of another driver")
    run.die("a", 2)
    assert run.state("a") == StageState(Status.RUNNING, "its process died; try 3 of 4")
    run.end("a")
    done = run.state("a")
    assert (done.status, done.reason) == (
        Status.DONE, "a: its process died, and another one went on",
    )  # fmt: skip


def test_what_is_asked_for_after_its_parent_failed_is_blocked(store: Store) -> None:
    """a asks for the child of b when b has failed: the run ends."""

    def needed(states: Mapping[str, StageState]) -> dict[str, StageState]:
        c = states["c"]
        if not states["a"].is_done:
            c = StageState(Status.IF_NEEDED)
        elif c.is_unneeded:
            c = StageState(Status.WAITING)
        return {**states, "c": c}

    run = Run(store, {"a": None, "b": None, "c": "b"}, slots=4, needed=needed)
    assert {run.next(), run.next()} == {"a", "b"}
    run.die("b")
    assert run.state("c").status is Status.IF_NEEDED
    assert run.end("a") is None
    assert run.state("c").status is Status.BLOCKED
    assert run.next() == Searcher.FINISHED


def test_a_stage_starts_only_once_a_result_has_shown_that_it_is_needed(store: Store) -> None:
    """a asks for b, and not for c; nothing is left when both are known."""

    def needed(states: Mapping[str, StageState]) -> dict[str, StageState]:
        later = Status.NOT_NEEDED if states["a"].is_done else Status.IF_NEEDED
        asked = states["b"] if states["b"].is_done else StageState(Status.WAITING)
        b = asked if states["a"].is_done else StageState(later)
        return {**states, "b": b, "c": StageState(later)}

    run = Run(store, dict.fromkeys("abc"), slots=4, needed=needed)
    assert [run.next(), run.next()] == ["a", None]
    assert run.state("c").status is Status.IF_NEEDED
    assert run.end("a") == "b"
    assert run.end("b") is None
    assert run.next() == Searcher.FINISHED
    assert run.state("c").status is Status.NOT_NEEDED


def test_results_are_read_for_a_tenth_of_the_time_while_there_is_other_work(store: Store) -> None:
    """The first result asks for b. Each stage takes a second, and so does reading all results."""
    now, read = 0.0, list[float]()
    others = [f"a{number}" for number in range(40)]

    def needed(states: Mapping[str, StageState]) -> dict[str, StageState]:
        nonlocal now
        now += 1
        read.append(now)
        asked = StageState(Status.WAITING) if states["b"].is_unneeded else states["b"]
        b = asked if states["a0"].is_done else StageState(Status.IF_NEEDED)
        return {**states, "b": b}

    seconds = dict.fromkeys([*others, "b"], 1.0) | {"b": 99.0}
    run = Run(store, dict.fromkeys(seconds), 1, seconds, watch=lambda: now, needed=needed)
    key, order = run.next(), list[str]()
    while key is not None:
        order.append(key)
        now += 1
        key = run.end(key)
    assert sorted(order) == sorted(seconds)
    assert order.index("b") < 15, "it is the most urgent one"
    assert len(read) < 10
    assert run.next() == Searcher.FINISHED


def test_what_is_needed_is_known_before_a_slot_is_left_without_a_stage(store: Store) -> None:
    """Only the first of two results asks for b, and the second comes before it is read again."""
    now = 0.0

    def needed(states: Mapping[str, StageState]) -> dict[str, StageState]:
        nonlocal now
        now += 1
        asked = StageState(Status.WAITING) if states["b"].is_unneeded else states["b"]
        b = asked if states["a"].is_done else StageState(Status.IF_NEEDED)
        return {**states, "b": b}

    run = Run(store, {"a": None, "b": None, "c": None}, 1, watch=lambda: now, needed=needed)
    first = run.next()
    second = run.end(str(first))
    assert {first, second} == {"a", "c"}
    assert run.end(str(second)) == "b"
