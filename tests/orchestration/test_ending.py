"""After a signal a run waits for the checkpoints of its trainings, and no longer than it says."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fope_lab.orchestration import controller, ending
from fope_lab.orchestration.ending import Interruption, LastCheckpoints, signals_interrupt
from fope_lab.store.attempt import Attempt
from fope_lab.store.lease import StopRequest
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status


class Scene:
    """A driver with two trainings and an evaluation, and another driver's training."""

    def __init__(self, root: Path) -> None:
        self.store, self.interruption = Store(root), Interruption()
        self.request = StopRequest(root / ".tune" / "driver" / "stop")
        self.request.prepare()
        self.said: list[str] = []
        kinds = {"a": "pretrain", "b": "extend", "c": "pretrain", "d": "passkey", "e": "pretrain"}
        self.stages: dict[str, Any] = {
            key: SimpleNamespace(
                key=key, kind=kind, label=f"{kind}[{key}]", spec=SimpleNamespace(trains=key != "d")
            )
            for key, kind in kinds.items()
        }
        running = StageState(Status.RUNNING)
        self.states = dict.fromkeys("abd", running) | {
            "c": StageState(Status.RUNNING, elsewhere=True),
            "e": StageState(Status.WAITING),
        }
        self.ending = LastCheckpoints(
            self.interruption,
            self.request,
            lambda: self.states,
            self.stages,
            self.store,
            "driver",
            self.said.append,
        )

    def begin(self, key: str, owner: str = "driver") -> Attempt:
        attempt = self.store.folder(self.stages[key].kind, key).begin(owner, {})
        attempt.heartbeat.stop()
        return attempt

    def turn(self) -> None:
        """A turn of Tune's loop."""
        self.ending.look()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(ending, "LOOK_SECONDS", 0.0)
    return Scene(tmp_path)


def test_without_a_signal_nothing_happens(scene: Scene) -> None:
    scene.begin("a")
    scene.turn()
    assert not scene.request.is_made()


def test_the_run_ends_when_the_last_training_has(scene: Scene) -> None:
    first, second = scene.begin("a"), scene.begin("b")
    scene.begin("c", "another")
    scene.begin("d")
    scene.interruption.noted = True
    scene.turn()
    assert scene.request.is_made()
    first.release()
    scene.turn()
    scene.states["a"] = scene.states["b"] = StageState(Status.INTERRUPTED)
    second.release()
    with pytest.raises(KeyboardInterrupt):
        scene.turn()
    assert scene.said == [
        "Interrupted: writing checkpoints of 2 trainings, for 60 s at most; Ctrl-C again ends the"
        " run at once"
    ]


def test_evaluations_alone_are_not_waited_for(scene: Scene) -> None:
    scene.begin("d")
    scene.interruption.noted = True
    with pytest.raises(KeyboardInterrupt):
        scene.turn()
    assert scene.request.is_made(), "a stage that is about to begin must not"
    assert scene.said == []


def test_a_step_that_takes_too_long_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = scene.begin("a")
    attempt.writer.save_checkpoint(8, lambda path: (path / "weights").write_text("1"))
    scene.states["b"] = StageState(Status.DONE)
    now = [100.0]
    monkeypatch.setattr(ending.time, "monotonic", lambda: now[0])
    scene.interruption.noted = True
    scene.turn()
    now[0] += 59
    scene.turn()
    now[0] += 2
    with pytest.raises(KeyboardInterrupt):
        scene.turn()
    assert scene.said == [
        "Interrupted: writing checkpoints of the training, for 60 s at most; Ctrl-C again ends the"
        " run at once",
        "pretrain[a] saved no checkpoint within 60 s; the next run goes on from step 8",
    ]


def test_where_nothing_can_be_written_nothing_is_waited_for(scene: Scene) -> None:
    scene.begin("a")
    scene.request.path.unlink()
    scene.request.path.mkdir()  # as a full disk, it takes no file
    scene.interruption.noted = True
    with pytest.raises(KeyboardInterrupt):
        scene.turn()


@pytest.fixture
def own_hangup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("own_hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_the_second_ends_at_once(number: signal.Signals) -> None:
    interruption, before = Interruption(), signal.getsignal(number)
    interruption.check()
    with interruption.noting():
        os.kill(os.getpid(), number)
        assert interruption.noted
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("own_hangup")
def test_after_it_signals_interrupt_as_before() -> None:
    with signals_interrupt():
        with Interruption().noting():
            pass
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.parametrize(("slow", "starts"), [(1, 2), (2, 2)])
def test_a_start_of_ray_that_took_too_long_is_tried_once_more(
    slow: int, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that the failed start left are killed."""
    left: list[subprocess.Popen[bytes]] = []

    def init(**options: object) -> str:
        left.append(subprocess.Popen(["sleep", "60"]))
        if len(left) <= slow:
            raise Exception("The current node timed out during startup. This could happen …")
        return "context"

    monkeypatch.setattr(controller.ray, "init", init)
    if slow < starts:
        controller._started("local", Path("own"), Interruption())
    else:
        with pytest.raises(Exception, match="timed out during startup"):
            controller._started("local", Path("own"), Interruption())
    assert len(left) == starts
    assert [process.wait(10) for process in left[:slow]] == [-9] * slow
    for process in left[slow:]:
        assert process.poll() is None
        process.kill()
        process.wait()
