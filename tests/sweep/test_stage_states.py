"""What follows for a stage from the states of its ancestors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fope_lab.store import StageState, Status
from fope_lab.sweep.plan import block_descendants, is_ready, unfinished_parents

STORED = [s for s in Status if s not in (Status.WAITING, Status.BLOCKED)]


def stage(key: str, *parents: str) -> Any:
    roles = {f"role {i}": parent for i, parent in enumerate(parents)}
    return SimpleNamespace(key=key, label=key.upper(), parents=roles)


def test_descendants_of_a_failed_stage_are_blocked_unless_they_are_done() -> None:
    stages = [stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "a", "a"), stage("e")]
    states = dict.fromkeys("abcde", StageState(Status.INTERRUPTED, "stopped"))
    states |= {"a": StageState(Status.FAILED, "no luck"), "d": StageState(Status.DONE)}
    blocked = block_descendants(stages, states)
    assert blocked["b"] == blocked["c"] == StageState(Status.BLOCKED, "A failed")
    assert {key: blocked[key] for key in "ade"} == {key: states[key] for key in "ade"}
    assert unfinished_parents(stages[3], states) == ["a"]


@given(data=st.data())
def test_exactly_the_unfinished_descendants_of_failures_are_blocked(data: st.DataObject) -> None:
    """Against the transitive closure of a random graph."""
    size = data.draw(st.integers(1, 7))
    edges = [data.draw(st.sets(st.integers(0, i - 1))) if i else set() for i in range(size)]
    stages = [stage(str(i), *map(str, sorted(edges[i]))) for i in range(size)]
    states = {one.key: StageState(data.draw(st.sampled_from(STORED))) for one in stages}

    def is_stopped(i: int) -> bool:
        """A finished stage needs its parents no more, so nothing stops at it or beyond it."""
        status = states[str(i)].status
        if status in (Status.DONE, Status.FAILED):
            return status is Status.FAILED
        return any(map(is_stopped, edges[i]))

    found = block_descendants(stages, states)
    for i, one in enumerate(stages):
        failed = states[one.key].status is Status.FAILED
        assert (found[one.key].status is Status.BLOCKED) == (is_stopped(i) and not failed)
        done = all(states[str(j)].status is Status.DONE for j in edges[i])
        assert is_ready(one, states) == done
