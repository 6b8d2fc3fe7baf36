"""Leases: one owner a time, judged on the observer's own clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fope_lab.store.attempts import Attempts, Ending, LeaseHeldError, driver_name, is_gone
from fope_lab.store.lease import Heartbeat, LeaseObserver, LeaseState


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def take(attempts: Attempts, owner: str, supersede: int | None = None) -> int:
    token = attempts.next_token(owner, supersede)
    attempts.take(token, owner, {})
    return token


def test_tokens_grow_and_a_held_lease_is_refused(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    assert take(attempts, "a") == 1
    with pytest.raises(LeaseHeldError, match="attempt 1 by a"):
        take(attempts, "b")
    attempts.end(1, Ending.RELEASED)
    assert take(attempts, "b") == 2


def test_the_same_owner_takes_over_at_once(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    take(attempts, "a")
    assert take(attempts, "a") == 2


def test_only_the_watched_token_can_be_superseded(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    take(attempts, "a")
    take(attempts, "a")
    with pytest.raises(LeaseHeldError):
        take(attempts, "b", supersede=1)
    assert take(attempts, "b", supersede=2) == 3


def test_of_many_takers_just_one_wins(tmp_path: Path) -> None:
    """All try at once; the losers find the lease held, never a token given twice."""
    attempts = Attempts(tmp_path)
    barrier = threading.Barrier(8)
    won: list[int] = []
    lost: list[str] = []

    def contend(owner: str) -> None:
        barrier.wait()
        try:
            won.append(take(attempts, owner))
        except LeaseHeldError:
            lost.append(owner)

    threads = [threading.Thread(target=contend, args=(f"owner {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [1]
    assert len(lost) == 7


def test_a_moving_counter_is_held_and_a_still_one_goes_stale(tmp_path: Path) -> None:
    clock = Clock()
    observer = LeaseObserver(seconds=16, clock=clock)
    attempts = Attempts(tmp_path)
    assert observer.state(attempts) == (LeaseState.FREE, 0)
    take(attempts, "a")
    for count in range(1, 20):  # alive for far longer than the lease lasts
        attempts.write_beat(1, count)
        assert observer.state(attempts) == (LeaseState.HELD, 1)
        clock.now += 15
    attempts.write_beat(1, 20)
    assert observer.state(attempts)[0] is LeaseState.HELD
    clock.now += 15.9
    assert observer.state(attempts)[0] is LeaseState.HELD
    clock.now += 0.2
    assert observer.state(attempts) == (LeaseState.STALE, 1)
    attempts.end(1, Ending.RELEASED)
    assert observer.state(attempts) == (LeaseState.FREE, 1)


def test_a_new_attempt_starts_the_watch_again(tmp_path: Path) -> None:
    clock = Clock()
    observer = LeaseObserver(seconds=16, clock=clock)
    attempts = Attempts(tmp_path)
    take(attempts, "a")
    observer.state(attempts)
    clock.now += 15
    take(attempts, "a")
    observer.state(attempts)
    clock.now += 15
    assert observer.state(attempts) == (LeaseState.HELD, 2)


def test_the_heartbeat_counts_until_it_is_stopped(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    take(attempts, "a")
    heartbeat = Heartbeat(attempts, 1, seconds=0.01)
    wait = threading.Event()
    for _ in range(500):
        if attempts.beat(1) >= 3:
            break
        wait.wait(0.01)
    heartbeat.stop()
    count = attempts.beat(1)
    assert count >= 3
    wait.wait(0.1)
    assert attempts.beat(1) == count


NAME = "from fope_lab.store.attempts import driver_name; print(driver_name())"


def name_in(*command: str) -> str:
    """The name of a driver that has ended, from a process that `command` starts."""
    program = [*command, sys.executable, "-c", NAME]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()


def test_a_driver_is_gone_when_its_process_has_ended() -> None:
    assert not is_gone(driver_name())
    ended = name_in()
    assert is_gone(ended)
    assert not is_gone(f"other-{ended}")
    assert not is_gone("a name of another form")


def test_of_a_driver_in_another_container_nobody_can_tell() -> None:
    """Its process number means nothing here, though the host has the same name."""
    elsewhere = ("unshare", "--pid", "--fork")
    can = (
        shutil.which("unshare") and not subprocess.run([*elsewhere, "true"], check=False).returncode
    )
    if not can:
        pytest.skip("making a namespace of processes needs root")
    assert not is_gone(name_in(*elsewhere))


def test_a_driver_of_this_machine_that_is_dead_is_waited_for_a_few_beats_only(
    tmp_path: Path,
) -> None:
    """Its trial may outlive it for a moment: as long as the heartbeat moves, the lease is held."""
    process = subprocess.Popen(["true"])
    process.wait()
    dead = driver_name().replace(f"-{os.getpid()}-", f"-{process.pid}-")
    now, attempts = [0.0], Attempts(tmp_path)
    observer = LeaseObserver(clock=lambda: now[0])
    attempts.take(1, dead, {})
    attempts.write_beat(1, 1)
    assert observer.state(attempts) == (LeaseState.HELD, 1)
    now[0] = 4.9
    assert observer.state(attempts)[0] is LeaseState.HELD
    attempts.write_beat(1, 2)
    now[0] = 9.0
    assert observer.state(attempts)[0] is LeaseState.HELD
    now[0] = 14.1
    assert observer.state(attempts)[0] is LeaseState.STALE
