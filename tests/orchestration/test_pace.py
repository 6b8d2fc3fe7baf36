"""Which slots are worth their start, on a clock of our own."""

from __future__ import annotations

import pytest

from fope_lab.orchestration import pace
from fope_lab.orchestration.pace import LOAD_SECONDS, WATCH_SECONDS, Pace, Starts

TICK = 1 / 64
LOADS = 5.0


def slots_started(
    stages: int, seconds: float, room: int, cores: float, at_once: int = 2
) -> tuple[int, float]:
    """How many slots start for `stages` stages of `seconds` each, where no more than `cores` of
    them get on at a time; and when the last stage ends.

    A slot that starts takes LOADS seconds of a core.
    """
    now, left, working, starting = 0.0, float(stages), 0, list[float]()
    watched, ended = Pace(lambda: now), 0
    while ended < stages:
        if left > working and working + len(starting) < room:
            while (
                len(starting) < max(at_once, working)
                and working + len(starting) < room
                and not watched.is_enough(int(left), working, len(starting))
            ):
                starting.append(0.0)
        share = TICK * min(1.0, cores / (working + len(starting)))
        starting = [done + share for done in starting]
        working += sum(done >= LOADS for done in starting)
        starting = [done for done in starting if done < LOADS]
        left -= working * share / seconds
        while ended < stages and ended < stages - left:
            watched.note_end()
            ended += 1
        now += TICK
    return working + len(starting), now


@pytest.mark.parametrize("stages", [300, 1000, 5000])
def test_no_more_slots_do_short_stages_than_bring_them_forward(stages: int) -> None:
    """On two cores that pretend to be 64."""
    slots, seconds = slots_started(stages, 1 / 24, room=64, cores=2)
    assert slots <= 4
    alone = LOADS + stages / 48
    assert seconds <= alone + WATCH_SECONDS + LOADS * (slots - 2)


@pytest.mark.parametrize(("seconds", "cores"), [(10.0, 64), (10.0, 2), (0.5, 64), (0.04, 64)])
def test_all_slots_do_stages_that_are_long_or_many(seconds: float, cores: int) -> None:
    """Also where 64 are pretended and the stages only sleep, which takes nothing of a core."""
    many = int(2000 / seconds)
    assert slots_started(many, seconds, room=64, cores=cores)[0] == 64


def test_none_starts_for_what_is_done_before_it_could_begin() -> None:
    assert slots_started(100, 0.125, room=64, cores=64)[0] == 2
    assert slots_started(9, 5.0, room=64, cores=64)[0] > 2


def test_what_was_short_and_gets_long_is_given_more_slots() -> None:
    now = 0.0
    watched = Pace(lambda: now)
    for _ in range(200):
        watched.note_end()
        assert watched.is_enough(100, 2, 0)
        now += 1 / 32
    now += LOAD_SECONDS
    assert not watched.is_enough(10, 2, 0)


def test_a_slot_that_hangs_holds_none_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "cores", lambda: 2)
    assert not Starts().are_enough([0.0])
    assert Starts().are_enough([0.0, 1.0])
    assert not Starts().are_enough([0.0, pace.START_SECONDS])


@pytest.mark.parametrize("seconds", [5.0, 40.0])
@pytest.mark.parametrize(("cores", "most"), [(2, (3, 4)), (1000, (32, 33))])
def test_processes_that_share_cores_start_a_few_at_a_time(
    cores: int, most: tuple[int, int], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of 64 start first; each takes so many seconds of a core, also of a disk that is slow."""
    monkeypatch.setattr(pace, "cores", lambda: 2)
    now, starts, started, found = 0.0, Starts(), 0, list[int]()
    starting = list[tuple[float, float]]()  # since when, and how much of it is done
    while started < 64:
        while started + len(starting) < 64 and not starts.are_enough(
            [now - since for since, _ in starting]
        ):
            starting.append((now, 0.0))
        found.append(len(starting))
        share = TICK * min(1.0, cores / len(starting))
        starting = [(since, done + share) for since, done in starting]
        for since, done in starting:
            if done >= seconds:
                started += 1
                starts.note(now - since)
        starting = [one for one in starting if one[1] < seconds]
        now += TICK
    assert most[0] <= max(found) <= most[1]
    assert cores > 2 or sum(found) / len(found) < 3.5
