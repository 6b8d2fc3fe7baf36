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


@pytest.mark.parametrize("workers_too", [False, True])
def test_the_driver_killed_in_the_middle(run, workers_too) -> None:  # type: ignore[no-untyped-def]
    """Alone, when its workers go on for some seconds; or with them, as when a machine goes down."""
    driver = run.start()
    run.wait(lambda: any(f.is_done() for f in run.of_kind("pretrain")) and run.training())
    interrupted = run.training()
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
    run.assert_complete()


def test_a_worker_killed_is_retried_from_its_checkpoint(run) -> None:  # type: ignore[no-untyped-def]
    driver = run.start()
    run.wait(lambda: bool(run.training()))
    [victim, *_] = run.training()
    os.kill(worker(victim), signal.SIGKILL)
    output = run.finish(driver)
    assert re.search(r"running +pretrain\S* .*its process died; try 2 of 4", output), output
    assert re.search(r"re-run: pretrain\S*: its process died, and another one went on", output)
    assert "Traceback" not in output
    record = victim.attempts.newest()
    assert record.token == 2
    assert record.details["resumed_from"]["step"] >= 20
    run.assert_complete()


def test_killed_in_the_middle_of_writing_a_checkpoint(run) -> None:  # type: ignore[no-untyped-def]
    """The worker is stopped until the moment is right: its checkpoint is there only in part."""
    driver = run.start()
    run.wait(lambda: bool(run.training()))
    [victim, *_] = run.training()
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
    run.finish(driver)
    assert victim.attempts.record(2).details["resumed_from"]["step"] == before.step
    assert not partial.exists()
    run.assert_complete()


def under_way(folder: StageFolder, steps: int = 5) -> bool:
    """Whether a training is some steps past its last checkpoint."""
    progress, checkpoint = folder.progress(), folder.checkpoint()
    done = checkpoint.step if checkpoint else 0
    return progress is not None and not folder.is_done() and progress["step"] >= done + steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_saves_checkpoints_and_the_next_run_goes_on(run, number) -> None:  # type: ignore[no-untyped-def]
    """No step is lost, and no lease is left."""
    driver = run.start()
    run.wait(lambda: any(under_way(folder) for folder in run.of_kind("pretrain")))
    before = {
        folder: progress["step"]
        for folder in run.of_kind("pretrain")
        if (progress := folder.progress())
    }
    if number is signal.SIGTERM:
        driver.send_signal(number)
    else:  # Ctrl-C in a terminal, and its end, come to the whole process group
        os.killpg(driver.pid, number)
    output, _ = driver.communicate(timeout=90)
    assert driver.returncode == 130, output
    assert "Interrupted: writing checkpoints of " in output
    assert "saved no checkpoint" not in output
    assert "Run the same command again to continue" in output
    assert "Traceback" not in output
    for stage in run.stages:
        newest = run.folder(stage).attempts.newest()
        assert newest is None or newest.end is not None, "a lease was left behind"
    for folder, step in before.items():
        checkpoint, progress = folder.checkpoint(), folder.progress()
        assert checkpoint.step == progress["step"] >= step, "steps were lost"
        assert checkpoint.step == folder.rows()[-1].step
    run.finish()
    run.assert_complete()


@pytest.mark.parametrize("moment", ["while Ray starts", "while stages run"])
def test_stopped_from_another_terminal_it_frees_its_stages(run, moment) -> None:  # type: ignore[no-untyped-def]
    driver = run.start()
    if moment == "while stages run":
        run.wait(lambda: bool(run.training()))
    else:
        run.wait(lambda: bool(list(run.store.root.glob(".tune/*/run.json"))))
    stop = [sys.executable, "-m", "fope_lab.cli", "stop", str(run.sweep)]
    stop += ["--store", str(run.store.root)]
    done = subprocess.run(stop, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"asked process {driver.pid} on " in done.stdout
    output, _ = driver.communicate(timeout=10)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    for stage in run.stages:
        newest = run.folder(stage).attempts.newest()
        assert newest is None or newest.end is not None, "a lease was left behind"
    again = subprocess.run(stop, check=False, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0
    assert again.stdout == f"faults: nothing is running in {run.store.root}\n"


def test_without_a_reader_of_its_output_it_goes_on(run) -> None:  # type: ignore[no-untyped-def]
    """As with `fope-lab run FILE | head -1`, first with stages to run, then with all cached."""
    command = f"{shlex.join(run.command)} | head -1; exit ${{PIPESTATUS[0]}}"
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"faults: {len(run.stages)} stages: ")
        assert done.stderr == ""
        run.assert_complete()


def test_two_drivers_share_one_store_without_doing_anything_twice(run) -> None:  # type: ignore[no-untyped-def]
    first, second = run.start(), run.start()
    run.finish(first)
    run.finish(second)
    assert set(run.attempts().values()) == {1}
    run.assert_complete()


def test_a_finished_sweep_run_again_trains_nothing(run) -> None:  # type: ignore[no-untyped-def]
    run.finish()
    attempts = run.attempts()
    started = time.monotonic()
    output = run.finish()
    assert f"{len(run.stages)} cached" in output
    assert run.attempts() == attempts
    assert time.monotonic() - started < 60
    run.assert_complete()


@pytest.mark.parametrize("seconds", [3, 5, 7])
def test_a_signal_during_the_start_of_ray(run, seconds) -> None:  # type: ignore[no-untyped-def]
    driver = run.start()
    time.sleep(seconds)
    driver.send_signal(signal.SIGTERM)
    output, _ = driver.communicate(timeout=60)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    assert not list((run.store.root / ".tune").glob("*"))


def test_what_a_killed_driver_left_is_cleared_by_the_next(run) -> None:  # type: ignore[no-untyped-def]
    driver = run.start()
    run.wait(lambda: bool(run.training()))
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    [left] = (run.store.root / ".tune").iterdir()
    session = Path((left / "ray-session").read_text())
    assert session.is_dir()
    run.finish()
    assert not session.exists()
    assert not list((run.store.root / ".tune").iterdir())


@pytest.mark.parametrize("name", ["raylet/raylet", "gcs/gcs_server"])
def test_a_process_of_ray_killed_ends_the_run_at_once(run, name) -> None:  # type: ignore[no-untyped-def]
    """With one line and no lease left, and the next run goes on."""
    driver = run.start()
    run.wait(lambda: bool(run.training()))
    [victim] = [p for p in psutil.Process(driver.pid).children() if name in p.cmdline()[0]]
    victim.kill()
    started = time.monotonic()
    output, _ = driver.communicate(timeout=60)
    assert time.monotonic() - started < 20
    assert driver.returncode == 2, output
    assert "has died; run the same command again: it goes on from the last checkpoints" in output
    assert "Traceback" not in output
    assert "raylet.cc" not in output, "Ray's log was printed"
    assert "Last 20 lines" not in output
    for stage in run.stages:
        newest = run.folder(stage).attempts.newest()
        assert newest is None or newest.end is not None, "a lease was left behind"
    run.finish()
    run.assert_complete()


@pytest.mark.parametrize("size", ["64k", "1m"])
def test_a_full_disk_from_the_start(run, size) -> None:  # type: ignore[no-untyped-def]
    """A real file system without room, from which nothing but one line for each stage comes."""
    run.store.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(run.store.root)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        driver = run.start()
        output, _ = driver.communicate(timeout=120)
        assert driver.returncode == 1, output
        assert "Traceback" not in output
        assert re.search("failed +prepare-data.*No space left|no space left.*ake room", output)
        subprocess.run(["mount", "-o", "remount,size=60m", str(run.store.root)], check=True)
        run.finish()
        run.assert_complete()
    finally:
        subprocess.run(["umount", "-l", str(run.store.root)], check=True)
