"""Time by the clock on given cores and GPUs, and the time left of a run: closed forms, bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.planning.schedule import (
    Machines,
    StageTime,
    TimeLeft,
    expected_seconds,
    time_left,
    wall_time,
)


def stage(
    key: str, parents: tuple[str, ...] = (), gpus: float = 0.0, kind: str = "pretrain"
) -> Any:
    resources = SimpleNamespace(gpus=gpus, cpus=1.0, size=max(1, int(gpus)))
    named = {f"data.{i}": parent for i, parent in enumerate(parents)}
    spec = SimpleNamespace(resources=resources)
    return SimpleNamespace(key=key, kind=kind, parents=named, spec=spec)


def test_a_chain_takes_its_sum_on_any_number_of_cores() -> None:
    stages = [stage("a"), stage("b", ("a",)), stage("c", ("b",))]
    found = wall_time(stages, {"a": 1.0, "b": 2.0, "c": 4.0}, Machines(8, 0))
    assert (found.longest_chain, found.scheduled) == (7.0, 7.0)
    assert found.shared_work == pytest.approx(7 / 8)


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


# The time left: forecasts, corrected by what has run


def left(
    stages: list[Any],
    forecasts: dict[str, float | None],
    measured: dict[str, StageTime] | None = None,
    **changes: Any,
) -> TimeLeft:
    given = {"cached": {}, "begun": {}, "stopped": (), "machines": Machines(1, 0)} | changes
    return time_left(stages, forecasts, measured or {}, **given)


FOUR = [stage(key) for key in "abcd"]
TEN: dict[str, float | None] = dict.fromkeys("abcd", 10.0)


def test_before_anything_has_run_it_is_the_plans() -> None:
    assert left(FOUR, TEN) == TimeLeft(0.0, 40.0, 0)
    assert left(FOUR, TEN, machines=Machines(2, 0)).seconds == 20.0
    chain = [stage("a"), stage("b", ("a",))]
    assert left(chain, TEN, machines=Machines(2, 0)).seconds == 20.0


def test_what_has_run_corrects_what_has_not() -> None:
    """Each of the four takes three times its forecast; one is done and one is half done."""
    measured = {"a": StageTime(30.0), "b": StageTime(30.0, left=15.0)}
    assert left(FOUR, TEN, measured) == TimeLeft(pytest.approx(45 / 120), 75.0, 0)


def test_each_kind_is_corrected_by_its_own_stages() -> None:
    stages = [stage("a"), stage("b"), stage("c", kind="passkey"), stage("d", kind="needle")]
    measured = {"a": StageTime(20.0), "c": StageTime(10.0)}
    expected = expected_seconds(stages, TEN, measured)
    assert expected == {"a": 20.0, "b": 20.0, "c": 10.0, "d": 15.0}


def test_a_stage_without_a_forecast_counts_as_those_of_its_kind_that_have_run() -> None:
    forecasts = {"a": 10.0, "b": 10.0, "c": None, "d": None}
    assert left(FOUR, forecasts) == TimeLeft(0.0, 20.0, 2)
    assert left(FOUR, forecasts, {"c": StageTime(7.0)}) == TimeLeft(pytest.approx(7 / 34), 27.0, 0)


def test_only_where_nothing_is_known_the_time_is_unknown() -> None:
    unknown: dict[str, float | None] = dict.fromkeys("abcd")
    assert left(FOUR, unknown) == TimeLeft(0.0, None, 4)
    stages = [stage("a"), stage("b", kind="passkey")]
    assert left(stages, unknown, {"a": StageTime(5.0)}) == TimeLeft(1.0, None, 1)


def test_a_stage_without_a_speed_yet_takes_the_rest_of_its_forecast() -> None:
    """Its time corrects no other stage; the finished one has taken twice its forecast."""
    measured = {"a": StageTime(20.0)}
    assert left(FOUR, TEN, measured, begun={"b": 5.0, "c": 30.0}).seconds == 15.0 + 0.0 + 20.0


def test_what_failed_takes_no_time_and_is_not_done() -> None:
    found = left(FOUR, TEN, {"a": StageTime(10.0)}, stopped={"b", "c"})
    assert found == TimeLeft(pytest.approx(0.25), 10.0, 0)
    unknown: dict[str, float | None] = {**TEN, "d": None}
    assert left(FOUR, unknown, stopped={"d"}).unknown == 0


def test_what_was_done_before_counts_as_done_and_corrects_nothing() -> None:
    found = left(FOUR, TEN, {"c": StageTime(20.0)}, cached={"a": 10.0, "b": 50.0})
    assert found == TimeLeft(pytest.approx(80 / 100), 20.0, 0)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 1e6), min_size=4, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.floats(0.01, 1e6), st.floats(0, 1))),
    st.sets(st.sampled_from("abcd")),
)
def test_a_share_is_a_share_and_all_that_is_done_takes_no_time(
    forecasts: dict[str, float], ran: dict[str, tuple[float, float]], stopped: set[str]
) -> None:
    measured = {key: StageTime(total, total * part) for key, (total, part) in ran.items()}
    found = left(FOUR, dict(forecasts), measured, stopped=stopped)
    assert 0 <= found.share <= 1
    assert found.seconds is not None
    assert found.seconds >= 0
    finished = {key: StageTime(seconds) for key, seconds in forecasts.items()}
    assert left(FOUR, dict(forecasts), finished) == TimeLeft(1.0, 0.0, 0)
