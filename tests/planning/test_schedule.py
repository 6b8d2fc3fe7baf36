"""Time by the clock on given cores and GPUs: closed forms, bounds, and Graham's guarantee."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.planning.schedule import Machines, wall_time


def stage(key: str, parents: tuple[str, ...] = (), gpus: float = 0.0, cpus: float = 1.0) -> Any:
    resources = SimpleNamespace(gpus=gpus, cpus=cpus, size=max(1, int(gpus)))
    named = {f"data.{i}": parent for i, parent in enumerate(parents)}
    return SimpleNamespace(key=key, parents=named, spec=SimpleNamespace(resources=resources))


def test_a_chain_takes_its_sum_on_any_number_of_cores() -> None:
    stages = [stage("a"), stage("b", ("a",)), stage("c", ("b",))]
    found = wall_time(stages, {"a": 1.0, "b": 2.0, "c": 4.0}, Machines(8, 0))
    assert (found.longest_chain, found.scheduled) == (7.0, 7.0)
    assert found.shared_work == pytest.approx(7 / 8)


def test_what_is_apart_is_shared_out() -> None:
    stages = [stage(str(i)) for i in range(6)]
    found = wall_time(stages, dict.fromkeys("012345", 10.0), Machines(2, 0))
    assert (found.bound, found.scheduled) == (30.0, 30.0)


def test_the_longest_remaining_path_goes_first() -> None:
    """Two cores: started last, the chain of three would take 1 + 3."""
    stages = [stage("x"), stage("y"), stage("a"), stage("b", ("a",)), stage("c", ("b",))]
    found = wall_time(stages, dict.fromkeys("xyabc", 1.0), Machines(2, 0))
    assert found.scheduled == 3.0


def test_gpus_are_shared_by_fractions_and_kept_from_others() -> None:
    halves = [stage(str(i), gpus=0.5) for i in range(4)]
    assert wall_time(halves, dict.fromkeys("0123", 1.0), Machines(8, 1)).scheduled == 2.0
    whole = [stage("0", gpus=2), stage("1", gpus=2)]
    found = wall_time(whole, {"0": 1.0, "1": 1.0}, Machines(8, 2))
    assert (found.scheduled, found.shared_work) == (2.0, 2.0)


def test_parents_that_are_done_hold_nothing_up() -> None:
    stages = [stage("a"), stage("b", ("a", "elsewhere"))]
    assert wall_time(stages, {"b": 2.0}, Machines(1, 0)).scheduled == 2.0
    assert wall_time(stages, {}, Machines(1, 0)).scheduled == 0.0


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.sets(st.integers(0, 11))), max_size=12),
    st.integers(1, 4),
)
def test_between_the_bounds_and_twice_the_best(
    graph: list[tuple[float, set[int]]], cores: int
) -> None:
    """Graham: equal cores and any order of the list take at most 2 − 1/m times the best time."""
    stages = [
        stage(str(i), tuple(str(p) for p in sorted(parents) if p < i))
        for i, (_, parents) in enumerate(graph)
    ]
    seconds = {str(i): one[0] for i, one in enumerate(graph)}
    found = wall_time(stages, seconds, Machines(cores, 0))
    tolerance = 1e-6
    assert found.bound <= found.scheduled + tolerance
    guarantee = found.shared_work + (1 - 1 / cores) * found.longest_chain
    assert found.scheduled <= guarantee + tolerance
