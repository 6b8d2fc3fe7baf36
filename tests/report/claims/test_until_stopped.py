"""Seeds until enough trainings have stopped early: which are asked for, and which count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.report.claims.seeds import CountedSeeds, follow_stops

STOPPED, RAN_OUT, UNSAID, OPEN = "stopped", "ran out", "says nothing", "open"


def training(words: list[str]) -> list[Any]:
    """The results of a training under each seed; older trainings say nothing of a stop."""
    recorded = {STOPPED: {"stopped_early": True}, RAN_OUT: {"stopped_early": False}}
    return [
        SimpleNamespace(
            stage=None,
            state=SimpleNamespace(is_done=word != OPEN),
            record=SimpleNamespace(recorded=recorded.get(word, {})),
        )
        for word in words
    ]


def follow(words: str, first: int = 3, wanted: int = 3) -> CountedSeeds:
    """A letter for each seed: s stopped early, r ran out, u says nothing of it, . is open."""
    names = {"s": STOPPED, "r": RAN_OUT, "u": UNSAID, ".": OPEN}
    return follow_stops(training([names[w] for w in words]), first, len(words), wanted)


@pytest.mark.parametrize(
    ("words", "asked", "may_ask", "counted", "out"),
    [
        ("........", 3, 8, (), ()),
        ("sss.....", 3, 3, (0, 1, 2), (3, 4, 5, 6, 7)),
        ("s.s.....", 3, 8, (0, 2), ()),
        ("srs.....", 4, 8, (0, 2), (1,)),
        ("sus.....", 4, 8, (0, 2), (1,)),
        ("srrs....", 5, 8, (0, 3), (1, 2)),
        ("srrss...", 5, 5, (0, 3, 4), (1, 2, 5, 6, 7)),
        ("rrr.....", 6, 8, (), ()),  # if none stops early, the first three count
        ("rrrrrrrr", 8, 8, (0, 1, 2), (3, 4, 5, 6, 7)),
        ("rrrrrrrs", 8, 8, (7,), (0, 1, 2, 3, 4, 5, 6)),
        ("ssssssss", 3, 3, (0, 1, 2), (3, 4, 5, 6, 7)),  # more were trained before
        (".ss.....", 3, 8, (1, 2), ()),
    ],
)
def test_what_is_asked_for_and_what_counts(
    words: str, asked: int, may_ask: int, counted: tuple[int, ...], out: tuple[int, ...]
) -> None:
    found = follow(words)
    assert (found.asked, found.may_ask, found.counted, found.out) == (asked, may_ask, counted, out)


def test_seeds_that_run_first_count_only_as_far_as_they_are_wanted() -> None:
    found = follow("ssss....", first=4, wanted=2)
    assert (found.asked, found.may_ask, found.settled) == (4, 4, True)
    assert found.ran == found.stopped == (0, 1, 2, 3)
    assert (found.counted, found.out) == ((0, 1), (2, 3, 4, 5, 6, 7))


@given(
    words=st.lists(st.sampled_from([STOPPED, RAN_OUT, UNSAID]), min_size=1, max_size=12),
    first=st.integers(1, 12),
    wanted=st.integers(1, 12),
    data=st.data(),
)
def test_whatever_ends_first_the_seeds_are_those_of_one_after_the_other(
    words: list[str], first: int, wanted: int, data: st.DataObject
) -> None:
    """Whichever of the seeds that are asked for ends next: the same seeds are trained, and what was
    known to count, or not to, stays so."""
    most = len(words)
    first, wanted = min(first, most), min(wanted, most)
    stops = [n for n, word in enumerate(words) if word == STOPPED]
    needed = most if len(stops) < wanted else max(first, stops[wanted - 1] + 1)
    within = [n for n in stops if n < needed]
    known = [OPEN] * most
    before: CountedSeeds | None = None
    while True:
        now = follow_stops(training(known), first, most, wanted)
        if before is not None:
            assert now.asked >= before.asked
            assert now.may_ask <= before.may_ask
            assert set(now.counted) >= set(before.counted)
            assert set(now.out) >= set(before.out)
        before = now
        open_ = [n for n in range(now.asked) if known[n] == OPEN]
        if not open_:
            break
        ended = data.draw(st.sampled_from(open_))
        known[ended] = words[ended]
    assert now.asked == now.may_ask == needed
    assert now.counted == tuple(within[:wanted] or range(wanted))
    assert set(now.out) == set(range(most)) - set(now.counted)
