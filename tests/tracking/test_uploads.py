"""A run's uploads, by the process that makes them, to a real MLflow in SQLite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
from tracking_scene import Scene, finish, of

from fope_lab.tracking.uploads import Uploads


def test_each_flush_sends_what_the_store_has_by_then(scene: Scene) -> None:
    plan = scene.plan()
    scene.tracker.record(plan)
    finish(scene.folder(of(plan, "pretrain")))
    with Uploads() as uploads:
        uploads.start(scene.tracker, ["first"])
        assert uploads.flush() is None
        assert len(scene.runs()) == 1
        scene.finish(plan)
        assert uploads.flush() is None
        assert len(scene.runs()) == len(plan.sweep.stages)
    assert not _processes()


def test_it_starts_before_a_run_imports_anything_that_takes_time() -> None:
    slow = ("fope_lab.store", "fope_lab.sweep", "mlflow", "pydantic", "rich", "torch")
    code = f"import fope_lab.tracking.uploads, sys; print(sorted({{*{slow}}} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"


def test_a_process_that_was_killed_is_told(scene: Scene) -> None:
    scene.tracker.record(scene.plan())
    with Uploads() as uploads:
        uploads.start(scene.tracker, ["first"])
        [process] = _processes()
        os.kill(process.pid, signal.SIGKILL)
        told = "the process that uploads to MLflow has died (exit status -9)"
        assert uploads.flush() == told
        assert uploads.unreachable == told


def test_what_a_killed_run_leaves_is_sent_and_the_process_ends(scene: Scene) -> None:
    plan = scene.finish(scene.plan())
    scene.tracker.record(plan)
    program = f"""
import os, signal, sys
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uploads import Uploads
uploads = Uploads().__enter__()
uploads.start(Tracker({str(scene.store.root)!r}), ["first"])
print(uploads._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program]
    killed = subprocess.run(command, check=False, capture_output=True, text=True)
    psutil.wait_procs([psutil.Process(int(killed.stdout))], timeout=60)
    assert not psutil.pid_exists(int(killed.stdout))
    assert len(scene.runs()) == len(plan.sweep.stages)


def _processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "uploads" in " ".join(one.cmdline())]
