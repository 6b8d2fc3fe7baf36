"""How long a stage took: attempts of known lengths add up, and lost work counts where it should."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.store import attempts
from fope_lab.store.attempt import Attempt
from fope_lab.store.attempts import BEAT_SECONDS, Ending, TimeTaken, over_attempts
from fope_lab.store.folder import StageFolder
from fope_lab.store.state import Status


@dataclass
class Clock:
    """Stands in for the module `time`; it goes only when it is told to."""

    wall: float = 1000.0
    cpu: float = 7.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.cpu

    def work(self, seconds: float) -> None:
        """Let time pass, a quarter of it on the processor."""
        self.wall, self.cpu = self.wall + seconds, self.cpu + seconds / 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(attempts, "time", clock)
    return clock


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return StageFolder(tmp_path / "pretrain" / "key")


def save(attempt: Attempt, step: int) -> Path:
    return attempt.writer.save_checkpoint(
        step, lambda path: (path / "model").write_text(str(step)) and None
    ).path


def die(attempt: Attempt, beats: int) -> None:
    """Leave an attempt as a killed process does, after so many heartbeats."""
    attempt.writer.close()
    attempt.heartbeat.stop()
    attempt.attempts.write_beat(attempt.token, beats)


def done_of(folder: StageFolder) -> dict[str, object]:
    done: dict[str, object] = json.loads(folder.paths.done.read_text())
    return done


def test_an_attempt_that_its_driver_ended_counts_by_its_heartbeats(
    folder: StageFolder, clock: Clock
) -> None:
    attempt = folder.begin("me", {})
    die(attempt, beats=4)
    folder.attempts.end(1, Ending.INTERRUPTED)
    with folder.begin("me", {}) as attempt:
        clock.work(1)
        attempt.finish({})
    assert folder.time_taken() == TimeTaken(3 * BEAT_SECONDS + 1, 2)


@pytest.mark.parametrize("devices", [("a", "b"), (None, "a"), ("a", None)])
def test_work_on_two_devices_has_no_time_of_one(
    folder: StageFolder, clock: Clock, devices: tuple[str | None, str | None]
) -> None:
    first, second = ({"device": device} if device else None for device in devices)
    with folder.begin("me", {}, made_by=first) as attempt:
        clock.work(2)
        save(attempt, 1)
    with folder.begin("me", {}, made_by=second) as attempt:
        attempt.finish({}, {})
    assert done_of(folder)["ran"]["resumed_time"] is None  # type: ignore[index]


@pytest.mark.parametrize("earlier", [None, 3, [], {}, {"seconds": 1}, {"seconds": "1"}])
def test_a_wrong_time_in_done_is_damage(folder: StageFolder, earlier: object) -> None:
    with folder.begin("me", {}) as attempt:
        attempt.finish({})
    folder.paths.done.write_text(json.dumps(done_of(folder) | {"earlier": earlier}))
    assert folder.state().status is Status.DAMAGED
    assert folder.time_taken() is None


@pytest.mark.parametrize("value", [None, "3", [3]])
def test_a_wrong_time_in_a_manifest_is_damage(folder: StageFolder, value: object) -> None:
    with folder.begin("me", {}) as attempt:
        manifest = save(attempt, 1) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"seconds": value}))
    assert folder.checkpoint() is None


def test_the_words() -> None:
    assert over_attempts("12 s", 3) == "12 s over 3 attempts"
    assert over_attempts("12 s", 1) == over_attempts("12 s", None) == "12 s"


Step = tuple[int, bool]
"""Seconds of work, and whether a checkpoint follows."""


@dataclass
class Past:
    """One attempt after another as a list tells them, and what they should add up to."""

    folder: StageFolder
    clock: Clock
    total: float = 0.0
    number: int = 0
    kept: float = 0.0
    saved: int = 0
    endings: dict[str, Callable[[Attempt], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.endings = {
            "released": lambda attempt: attempt.release(),
            "failed": lambda attempt: attempt.fail(ValueError("no")),
            "interrupted": lambda attempt: attempt.interrupt(ValueError("no")),
            "done": lambda attempt: attempt.finish({}, {}),
        }

    def attempt(self, steps: list[Step], ending: str) -> None:
        attempt = self.folder.begin("me", {})
        unsaved = 0.0
        for seconds, saves in steps:
            self.clock.work(seconds)
            unsaved += seconds
            if saves:
                self.saved += 1
                save(attempt, self.saved)
                self.kept, unsaved = self.kept + unsaved, 0.0
        length = float(sum(seconds for seconds, _ in steps))
        if ending == "died":
            beats = int(length // 2) + 1  # a beat at the start, and after each two seconds
            die(attempt, beats)
            length = 2.0 * (beats - 1)
        else:
            self.endings[ending](attempt)
        self.total, self.number = self.total + length, self.number + 1
        if ending == "done":
            self.kept += unsaved

    def set_aside(self) -> None:
        if self.folder.set_aside("me", "on request") is not None:
            self.total, self.number, self.kept = 0.0, 0, 0.0


STEPS = st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=3)
ENDINGS = st.sampled_from(["released", "failed", "interrupted", "died", "set aside"])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(STEPS, ENDINGS), max_size=4), STEPS)
def test_any_past_adds_up(past: list[tuple[list[Step], str]], last: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(attempts, "time", clock)
        stage = Past(StageFolder(Path(root) / "pretrain" / "key"), clock)
        for steps, ending in past:
            if ending == "set aside":
                stage.set_aside()
            else:
                stage.attempt(steps, ending)
        stage.attempt(last, "done")
        assert stage.folder.time_taken() == TimeTaken(stage.total, stage.number)
        done, kept = done_of(stage.folder), stage.folder.final_checkpoint()
        earlier = {"seconds": stage.total - done["seconds"], "attempts": stage.number - 1}
        assert done["earlier"] == earlier
        before = done["ran"]["resumed_time"]  # type: ignore[index]
        assert before["seconds"] <= (kept.work_time().seconds if kept else 0) <= stage.kept
        assert done["seconds"] + before["seconds"] == stage.kept  # type: ignore[operator]
        assert before["cpu_seconds"] == before["seconds"] / 4
