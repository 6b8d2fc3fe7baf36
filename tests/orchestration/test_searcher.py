"""The DAG-aware searcher on graphs of its own, driven as Tune drives it, without a cluster."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.tune.search import Searcher

from fope_lab.orchestration.phases import Phase
from fope_lab.orchestration.searcher import StageSearcher, remaining_path
from fope_lab.orchestration.trial import HELD, KEY, OUTCOME
from fope_lab.store import Store

KIND = "pretrain"


@dataclass
class Node:
    """What the searcher needs to know of a stage."""

    key: str
    parents: dict[str, str] = field(default_factory=dict)
    kind: str = KIND

    @property
    def name(self) -> str:
        return self.key


def searcher_of(nodes: list[Node], store: Store, slots: int, seconds: dict[str, float]) -> Any:
    return StageSearcher(nodes, store, "driver", slots, seconds)  # type: ignore[arg-type]


def finish(store: Store, key: str) -> None:
    with store.folder(KIND, key).begin("driver", {}) as attempt:
        attempt.finish({})


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], dict[str, float]]:
    """Layered graphs as sweeps make them: each stage has up to two earlier ones as parents."""
    count = draw(st.integers(1, 14))
    nodes = []
    for i in range(count):
        chosen = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        nodes.append(Node(f"s{i}", {f"role {p}": f"s{p}" for p in chosen}))
    seconds = {node.key: draw(st.floats(0.1, 10)) for node in nodes}
    return nodes, seconds


def simulate(
    nodes: list[Node], seconds: dict[str, float], slots: int, store: Store
) -> tuple[float, list[str]]:
    """Run the searcher's decisions on a clock of our own: the makespan, and the order of starts."""
    searcher = searcher_of(nodes, store, slots, seconds)
    now, running, order = 0.0, [], []
    while True:
        while len(running) < slots:
            trial = f"trial {len(order)}"
            config = searcher.suggest(trial)
            if config == Searcher.FINISHED:
                return now, order
            if config is None:
                break
            key = config[KEY]
            node = next(node for node in nodes if node.key == key)
            for parent in node.parents.values():
                assert store.folder(KIND, parent).is_done()
            order.append(key)
            heapq.heappush(running, (now + seconds[key], trial, key))
        assert running, "nothing runs, yet the searcher is not finished"
        now, trial, key = heapq.heappop(running)
        finish(store, key)
        searcher.on_trial_complete(trial, {OUTCOME: "done"})


@settings(max_examples=50, deadline=None)
@given(graph=graphs(), slots=st.integers(1, 4))
def test_every_stage_runs_once_after_its_parents_within_grahams_bound(
    graph: tuple[list[Node], dict[str, float]],
    slots: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any list schedule takes at most (2 − 1/m) times the best (Graham 1969), whose lower bounds
    are the work over the slots and the longest chain."""
    nodes, seconds = graph
    store = Store(tmp_path_factory.mktemp("store"))
    makespan, order = simulate(nodes, seconds, slots, store)
    assert sorted(order) == sorted(node.key for node in nodes)
    longest = max(remaining_path(nodes, seconds).values())  # type: ignore[arg-type]
    bound = max(sum(seconds.values()) / slots, longest)
    assert makespan <= (2 - 1 / slots) * bound + 1e-9
    assert makespan >= bound - 1e-9 or makespan == pytest.approx(bound)


def test_the_longest_remaining_path_goes_first(tmp_path: Path) -> None:
    nodes = [Node("short"), Node("long"), Node("after", {"from": "long"})]
    seconds = {"short": 5.0, "long": 1.0, "after": 9.0}
    makespan, order = simulate(nodes, seconds, 1, Store(tmp_path))
    assert order == ["long", "after", "short"]
    assert makespan == 15.0


def test_a_failed_stage_fails_its_descendants_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    nodes = [
        Node("a"), Node("b"), Node("a child", {"from": "a"}),
        Node("a grandchild", {"from": "a child"}), Node("b child", {"from": "b"}),
    ]  # fmt: skip
    searcher = searcher_of(nodes, store, 1, {node.key: 1.0 for node in nodes})
    assert searcher.suggest("t1")[KEY] == "a"
    with pytest.raises(RuntimeError), store.folder(KIND, "a").begin("driver", {}):
        raise RuntimeError("no luck")
    searcher.on_trial_complete("t1", {OUTCOME: "failed"})
    assert searcher.suggest("t2")[KEY] == "b"
    finish(store, "b")
    searcher.on_trial_complete("t2", {OUTCOME: "done"})
    assert searcher.suggest("t3")[KEY] == "b child"
    finish(store, "b child")
    searcher.on_trial_complete("t3", {OUTCOME: "done"})
    assert searcher.suggest("t4") == Searcher.FINISHED
    status = searcher.status()
    assert {key: one.phase for key, one in status.items()} == {
        "a": Phase.FAILED, "a child": Phase.BLOCKED, "a grandchild": Phase.BLOCKED,
        "b": Phase.DONE, "b child": Phase.DONE,
    }  # fmt: skip
    assert status["a"].reason == "no luck"
    assert status["a grandchild"].reason == "a failed"


def test_what_the_store_holds_is_not_started(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(store, "a")
    searcher = searcher_of([Node("a"), Node("b", {"from": "a"})], store, 2, {"a": 1, "b": 1})
    assert searcher.suggest("t1")[KEY] == "b"
    assert searcher.suggest("t2") is None
    assert searcher.status()["a"].cached


def test_a_stage_of_another_driver_is_waited_for_and_then_taken_from_the_store(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    other = store.folder(KIND, "a").begin("another driver", {})
    searcher = searcher_of([Node("a"), Node("b", {"from": "a"})], store, 2, {"a": 1, "b": 1})
    assert searcher.suggest("t1") is None
    assert searcher.status()["a"].phase is Phase.ELSEWHERE
    with other:
        other.finish({})
    while (config := searcher.suggest("t1")) is None:
        pass
    assert config[KEY] == "b"
    assert searcher.status()["a"].phase is Phase.DONE


def test_a_trial_that_found_the_stage_held_gives_it_back(tmp_path: Path) -> None:
    searcher = searcher_of([Node("a")], Store(tmp_path), 1, {"a": 1})
    assert searcher.suggest("t1")[KEY] == "a"
    searcher.on_trial_complete("t1", {OUTCOME: HELD})
    assert searcher.suggest("t2")[KEY] == "a"


def test_no_more_is_handed_out_than_fits(tmp_path: Path) -> None:
    searcher = searcher_of(
        [Node(str(i)) for i in range(5)], Store(tmp_path), 2, {str(i): 1 for i in range(5)}
    )
    assert [searcher.suggest(f"t{i}") is None for i in range(4)] == [False, False, True, True]


def test_a_stage_that_ends_without_a_word_is_failed(tmp_path: Path) -> None:
    """Its process died more often than Tune retries."""
    searcher = searcher_of([Node("a")], Store(tmp_path), 1, {"a": 1})
    searcher.suggest("t1")
    searcher.on_trial_complete("t1", None, error=True)
    assert searcher.status()["a"].phase is Phase.FAILED
    assert "died" in searcher.status()["a"].reason
