"""An MLflow server killed, wiped and interrupted: nothing is lost or doubled, none is left."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tracking_scene import LiveServer, Scene, at_most, expected, of

from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import TrackingThread

pytestmark = pytest.mark.faults

POINTS = 10_000


def test_nothing_is_lost_or_doubled_when_the_server_is_killed_and_wiped(tmp_path: Path) -> None:
    live = LiveServer(tmp_path / "server")
    live.root.mkdir()
    assert live.uri in live.start()
    scene = Scene(tmp_path, live.uri)
    plan = scene.plan()
    stage, other = of(plan, "pretrain"), of(plan, "pretrain", "nope")
    thread = TrackingThread(scene.tracker, [plan], seconds=0.2)
    thread.start()
    longest = 0.0
    with scene.folder(stage).begin("test", {}) as attempt:
        for step in range(1, 401):
            if step == 150:
                live.kill()
            before = time.monotonic()
            attempt.writer.log(step, {"loss": 1.0 / step})
            longest = max(longest, time.monotonic() - before)
            if step % 10 == 0:
                attempt.writer.save_checkpoint(
                    step, lambda path: (path / "model").write_bytes(b"m")
                )
            time.sleep(0.01)
        attempt.finish({})
    assert longest < 0.2
    with at_most(5):
        problem = thread.flush()
    assert problem == f"no MLflow answers at {live.uri}"

    live.start()
    scene.tracker.project(plan)
    rows = expected(scene.folder(stage).rows())
    assert len(rows) == 400
    assert scene.points(scene.run(stage)) == rows

    with scene.folder(other).begin("test", {}) as attempt:
        for step in range(POINTS):
            attempt.writer.log(step, {"loss": float(step)})
        attempt.finish({})

    def has_points() -> bool:
        found = [run for run in scene.runs() if run.data.tags.get("key") == other.key]
        return any(run.data.metrics for run in found)

    def kill_in_the_middle() -> None:
        while not has_points():
            time.sleep(0.01)
        live.kill()

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    with pytest.raises(TrackingError):
        scene.tracker.project(plan)
    killer.join()
    live.start()
    sent = len(scene.points(scene.run(other)))
    assert 0 < sent < POINTS
    scene.restart().project(plan)
    assert scene.points(scene.run(other)) == expected(scene.folder(other).rows())

    live.kill()
    (live.root / "mlflow.db").unlink()
    live.start()
    scene.tracker.project(plan)  # the same process, which had sent everything already
    assert len(scene.runs()) == 2
    for one in (stage, other):
        assert scene.points(scene.run(one)) == expected(scene.folder(one).rows())

    group = live.mlflow_group()
    assert live.stop(signal.SIGINT) == 0
    listed = subprocess.run(["ps", "-eo", "pgid="], check=True, stdout=subprocess.PIPE, text=True)
    assert str(group) not in listed.stdout.split()
