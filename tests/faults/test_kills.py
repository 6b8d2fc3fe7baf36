"""Drivers and workers killed for real: nothing is lost, nothing is done twice.

To start Ray takes longer than a fault: one sweep lives through several of them, one after another.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import SHORT, SWEEP, Run  # type: ignore[attr-defined]

from fope_lab.store.folder import StageFolder

pytestmark = pytest.mark.faults


def worker(folder: StageFolder) -> int:
    """The process that works on a stage."""
    newest = folder.attempts.newest()
    assert newest is not None
    return int(newest.details["pid"])


def assert_no_lease(run: Run) -> None:
    for stage in run.stages:
        newest = run.folder(stage).attempts.newest()
        assert newest is None or newest.end is not None, "a lease was left behind"


def under_way(folder: StageFolder, steps: int = 5) -> bool:
    """Whether a training runs, and is some steps past its last checkpoint."""
    progress, checkpoint = folder.progress(), folder.checkpoint()
    newest, done = folder.attempts.newest(), checkpoint.step if checkpoint else 0
    runs = newest is not None and newest.end is None
    return runs and progress is not None and progress["step"] >= done + steps


def start_training(run: Run) -> subprocess.Popen[str]:
    """A driver, when one of its trainings is under way."""
    driver = run.start()
    run.wait(lambda: any(under_way(folder) for folder in run.of_kind("pretrain")))
    return driver


def stop(run: Run) -> subprocess.CompletedProcess[str]:
    """`fope-lab stop` on the sweep."""
    command = [sys.executable, "-m", "fope_lab.cli", "stop", str(run.sweep)]
    command += ["--store", str(run.store.root)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def test_interrupted_it_saves_checkpoints_and_the_next_run_goes_on(run: Run) -> None:
    """At each of three signals, one after another: no step is lost, and no lease is left. In the
    run after them, workers are killed."""
    run.write(SWEEP.replace("204800", "512000"))  # or a fast machine is done before the last kill
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        driver = start_training(run)
        before = {
            folder: progress["step"]
            for folder in run.of_kind("pretrain")
            if (progress := folder.progress())
        }
        if number is signal.SIGTERM:
            done = stop(run)
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"asked process {driver.pid} on " in done.stdout
        else:  # Ctrl-C in a terminal, and its end, come to the whole process group
            os.killpg(driver.pid, number)
        output, _ = driver.communicate(timeout=90)
        assert driver.returncode == 130, output
        assert "Interrupted: writing checkpoints of " in output
        assert "saved no checkpoint" not in output
        assert "Run the same command again to continue" in output
        assert "Traceback" not in output
        assert_no_lease(run)
        for folder, step in before.items():
            checkpoint, progress = folder.checkpoint(), folder.progress()
            assert checkpoint is not None
            assert progress is not None
            assert checkpoint.step == progress["step"] >= step, "steps were lost"
            assert checkpoint.step == folder.rows()[-1].step
    workers_killed_go_on_from_their_checkpoints(run)


def workers_killed_go_on_from_their_checkpoints(run: Run) -> None:
    """One at any moment, and another in the middle of writing a checkpoint: it is stopped until the
    moment is right, when its checkpoint is there only in part."""
    driver = start_training(run)
    [first, *_] = filter(under_way, run.of_kind("pretrain"))
    os.kill(worker(first), signal.SIGKILL)
    tried = first.attempts.newest_token()
    others = [folder for folder in run.of_kind("pretrain") if folder.path != first.path]
    run.wait(lambda: any(map(under_way, others)))
    [victim, *_] = filter(under_way, others)
    pid, token = worker(victim), victim.attempts.newest_token()

    def half_written() -> list[Path]:
        return [p for p in (victim.path / "checkpoint").glob(f".{token:04d}-*") if p.is_dir()]

    for _ in range(3000):
        os.kill(pid, signal.SIGSTOP)
        if half_written():
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
        assert not victim.is_done(), "it was finished before a write could be caught"
    [partial] = half_written()
    before = victim.checkpoint()
    assert before is not None
    assert f"{before.step:09d}" not in partial.name
    os.kill(pid, signal.SIGKILL)
    output = run.finish(driver)
    died = r"(waiting|running) +pretrain\S* .*its process died; try 2 of 4"
    assert re.search(died, output), output  # it runs again, as soon as a process has started
    again = re.findall(r"re-run: pretrain\S*: its process died, and another one went on", output)
    assert len(again) == 2, output
    assert "Traceback" not in output
    for folder, last, steps in ((first, tried, 20), (victim, token, before.step)):
        record = folder.attempts.record(last + 1)
        assert record is not None
        assert record.details["resumed_from"]["step"] >= steps
    assert not partial.exists()
    run.assert_complete()


def test_the_driver_or_ray_killed_in_the_middle(run: Run) -> None:
    """The driver alone, when its workers go on for some seconds; or with them, as when a machine
    goes down; or a process of Ray, which ends the run at once, with one line and no lease left.
    The next run goes on, and clears what was left."""
    run.write(SWEEP)
    for name in ("raylet/raylet", "gcs/gcs_server"):
        driver = start_training(run)
        [victim] = [p for p in psutil.Process(driver.pid).children() if name in p.cmdline()[0]]
        victim.kill()
        started = time.monotonic()
        output, _ = driver.communicate(timeout=60)
        assert time.monotonic() - started < 20
        assert driver.returncode == 2, output
        assert "has died; run the same command again: it goes on from the last" in output
        assert "Traceback" not in output
        assert "raylet.cc" not in output, "Ray's log was printed"
        assert "Last 20 lines" not in output
        assert_no_lease(run)

    driver = start_training(run)
    run.wait(lambda: any(f.is_done() for f in run.of_kind("pretrain")))
    finished = [stage for stage in run.stages if run.folder(stage).is_done()]
    attempts = run.attempts()
    sessions = [_session(run)]
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()

    driver = run.start()
    interrupted: list[StageFolder] = []

    def some_are_past_a_checkpoint() -> bool:
        trainings = run.of_kind("pretrain")
        interrupted[:] = [one for one in trainings if under_way(one) and one.checkpoint()]
        return bool(interrupted)

    run.wait(some_are_past_a_checkpoint)
    sessions += [_session(run)]
    os.kill(driver.pid, signal.SIGKILL)
    tokens = {folder: folder.attempts.newest_token() for folder in interrupted}
    for folder in interrupted:
        os.kill(worker(folder), signal.SIGKILL)
    driver.communicate()

    run.finish()
    for stage in finished:
        assert run.folder(stage).attempts.newest_token() == attempts[stage.key]
    for folder, token in tokens.items():
        record = folder.attempts.newest()
        assert record is not None
        assert record.token == token + 1
        assert record.details["resumed_from"]["step"] >= 20
    assert not any(session.exists() for session in sessions)
    assert not list((run.store.root / ".tune").iterdir())
    run.assert_complete()


def _session(run: Run) -> Path:
    """The folder of the Ray that a driver has started last."""
    left = max((run.store.root / ".tune").glob("*/ray"), key=os.path.getmtime)
    session = Path(left.read_text())
    assert session.is_dir()
    return session


def test_ended_while_ray_starts_it_leaves_nothing(run: Run) -> None:
    """While it imports Ray, by `fope-lab stop`, and when each of Ray's first processes is there."""
    run.write(SHORT)

    def has(driver: subprocess.Popen[str], name: str) -> bool:
        return any(
            name in " ".join(process.cmdline()[:1])
            for process in psutil.Process(driver.pid).children()
            if process.status() != psutil.STATUS_ZOMBIE
        )

    for moment in ("importing", "stop", "gcs/gcs_server", "raylet/raylet"):
        driver = run.start()
        if moment == "importing":
            assert driver.stdout is not None
            assert driver.stdout.readline().startswith("faults: ")
        elif moment == "stop":
            run.wait(lambda: bool(list(run.store.root.glob(".tune/*/run.json"))))
            done = stop(run)
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"asked process {driver.pid} on " in done.stdout
        else:
            run.wait(lambda driver=driver, moment=moment: has(driver, moment))
        if moment != "stop":
            driver.send_signal(signal.SIGTERM)
        output, _ = driver.communicate(timeout=60)
        assert driver.returncode == 130, output
        assert "Traceback" not in output
        assert not list((run.store.root / ".tune").glob("*"))
        assert_no_lease(run)
    again = stop(run)
    assert again.returncode == 0
    assert again.stdout == f"faults: nothing is running in {run.store.root}\n"
