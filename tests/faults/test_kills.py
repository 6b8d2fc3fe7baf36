"""Drivers and workers killed for real: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fope_lab.store import StageFolder

pytestmark = pytest.mark.faults


def worker(folder: StageFolder) -> int:
    """The process that works on a stage."""
    newest = folder.attempts.newest()
    assert newest is not None
    return int(newest.details["pid"])


def assert_no_lease(run) -> None:  # type: ignore[no-untyped-def]
    for stage in run.stages:
        newest = run.folder(stage).attempts.newest()
        assert newest is None or newest.end is not None, "a lease was left behind"


@pytest.mark.parametrize("workers_too", [False, True])
def test_the_driver_killed_in_the_middle(run, workers_too) -> None:  # type: ignore[no-untyped-def]
    """Alone, when its workers go on for some seconds; or with them, as when a machine goes down.
    The next run goes on, and clears what was left."""
    driver = run.start()
    run.wait(lambda: any(f.is_done() for f in run.of_kind("pretrain")) and run.training())
    interrupted = run.training()
    [left] = (run.store.root / ".tune").iterdir()
    session = Path((left / "ray-session").read_text())
    assert session.is_dir()
    os.kill(driver.pid, signal.SIGKILL)
    if workers_too:
        for folder in interrupted:
            os.kill(worker(folder), signal.SIGKILL)
    driver.communicate()
    attempts, finished = run.attempts(), [s for s in run.stages if run.folder(s).is_done()]
    assert 0 < len(finished) < len(run.stages)

    run.finish()
    for stage in finished:
        assert run.folder(stage).attempts.newest_token() == attempts[stage.key]
    if workers_too:
        for folder in interrupted:
            record = folder.attempts.newest()
            assert record.token == 2
            assert record.details["resumed_from"]["step"] >= 20
    assert not session.exists()
    assert not list((run.store.root / ".tune").iterdir())
    run.assert_complete()


def test_workers_killed_go_on_from_their_checkpoints(run) -> None:  # type: ignore[no-untyped-def]
    """One at any moment, and another in the middle of writing a checkpoint: it is stopped until the
    moment is right, when its checkpoint is there only in part."""
    driver = run.start()
    run.wait(lambda: bool(run.training()))
    [first, *_] = run.training()
    os.kill(worker(first), signal.SIGKILL)
    run.wait(lambda: [f for f in run.training() if f.path != first.path])
    [victim, *_] = [f for f in run.training() if f.path != first.path]
    pid = worker(victim)

    def half_written() -> list[Path]:
        return [p for p in (victim.path / "checkpoint").glob(".0001-*") if p.is_dir()]

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
    assert re.search(r"running +pretrain\S* .*its process died; try 2 of 4", output), output
    again = re.findall(r"re-run: pretrain\S*: its process died, and another one went on", output)
    assert len(again) == 2, output
    assert "Traceback" not in output
    assert first.attempts.record(2).details["resumed_from"]["step"] >= 20
    assert victim.attempts.record(2).details["resumed_from"]["step"] == before.step
    assert not partial.exists()
    run.assert_complete()


def under_way(folder: StageFolder, steps: int = 5) -> bool:
    """Whether a training runs, and is some steps past its last checkpoint."""
    progress, checkpoint = folder.progress(), folder.checkpoint()
    newest, done = folder.attempts.newest(), checkpoint.step if checkpoint else 0
    runs = newest is not None and newest.end is None
    return runs and progress is not None and progress["step"] >= done + steps


def stop(run) -> subprocess.CompletedProcess[str]:  # type: ignore[no-untyped-def]
    """`fope-lab stop` on the sweep."""
    command = [sys.executable, "-m", "fope_lab.cli", "stop", str(run.sweep)]
    command += ["--store", str(run.store.root)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def test_interrupted_it_saves_checkpoints_and_the_next_run_goes_on(run) -> None:  # type: ignore[no-untyped-def]
    """At each of three signals, one after another: no step is lost, and no lease is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        driver = run.start()
        run.wait(lambda: any(under_way(folder) for folder in run.of_kind("pretrain")))
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
            assert checkpoint.step == progress["step"] >= step, "steps were lost"
            assert checkpoint.step == folder.rows()[-1].step
    run.finish()
    run.assert_complete()


def test_ended_while_ray_starts_it_leaves_nothing(run) -> None:  # type: ignore[no-untyped-def]
    """By `fope-lab stop`, and by a signal at several moments."""
    for seconds in (0, 3, 5, 7):
        driver = run.start()
        if seconds:
            time.sleep(seconds)
            driver.send_signal(signal.SIGTERM)
        else:
            run.wait(lambda: bool(list(run.store.root.glob(".tune/*/run.json"))))
            done = stop(run)
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"asked process {driver.pid} on " in done.stdout
        output, _ = driver.communicate(timeout=60)
        assert driver.returncode == 130, output
        assert "Traceback" not in output
        assert not list((run.store.root / ".tune").glob("*"))
        assert_no_lease(run)
    again = stop(run)
    assert again.returncode == 0
    assert again.stdout == f"faults: nothing is running in {run.store.root}\n"


def test_two_drivers_share_one_store_without_doing_anything_twice(run) -> None:  # type: ignore[no-untyped-def]
    """One of them without a reader of its output, as with `fope-lab run FILE | head -1`. Run again,
    the finished sweep trains nothing."""
    first = run.start()
    command = f"{shlex.join(run.command)} | head -1; exit ${{PIPESTATUS[0]}}"
    attempts = {}
    for _ in range(2):
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"faults: {len(run.stages)} stages: ")
        assert done.stderr == ""
        if not attempts:
            run.finish(first)
            attempts = run.attempts()
            assert set(attempts.values()) == {1}
    assert f"{len(run.stages)} cached" in done.stdout
    assert time.monotonic() - started < 60
    assert run.attempts() == attempts
    run.assert_complete()


def test_a_process_of_ray_killed_ends_the_run_at_once(run) -> None:  # type: ignore[no-untyped-def]
    """With one line and no lease left, and the next run goes on."""
    for name in ("raylet/raylet", "gcs/gcs_server"):
        driver = run.start()
        run.wait(lambda: any(under_way(folder) for folder in run.of_kind("pretrain")))
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
    run.finish()
    run.assert_complete()


def test_a_full_disk_from_the_start(run) -> None:  # type: ignore[no-untyped-def]
    """A real file system without room, from which nothing but one line for each stage comes."""
    run.store.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(run.store.root)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        for larger in ("1m", "60m"):
            driver = run.start()
            output, _ = driver.communicate(timeout=120)
            assert driver.returncode == 1, output
            assert "Traceback" not in output
            assert re.search("failed +prepare-data.*No space left|no space left.*ake room", output)
            subprocess.run(["mount", "-o", f"remount,size={larger}", run.store.root], check=True)
        run.finish()
        run.assert_complete()
    finally:
        subprocess.run(["umount", "-l", str(run.store.root)], check=True)
