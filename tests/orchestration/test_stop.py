"""`fope-lab stop` ends the drivers of a sweep on this machine, and no other process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.orchestration.drivers import RUN, scratch_folder, stop_request
from fope_lab.store.attempts import driver_name
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.ledger import Ledger

SWEEP = kept_sweep.PRETRAIN.replace("name: kept", "name: stopped")


class Scene:
    """A sweep that a store has recorded."""

    def __init__(self, folder: Path) -> None:
        self.file, self.store = folder / "stopped.yaml", Store.create(folder / "store")
        self.file.write_text(SWEEP)
        sweep = load_sweep(self.file)
        [stage] = sweep.stages
        self.folder: StageFolder = self.store.folder(stage.kind, stage.key)
        Ledger(self.store, "none").save_outline(plan(sweep, self.store))

    def stop(self) -> int:
        return main(["stop", str(self.file), "--store", str(self.store.root)])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*command], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def driver(folder: StageFolder) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease of a stage."""
    program = str(Path(__file__).with_name("driver_process.py"))
    with started(sys.executable, program, str(folder.path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def test_a_driver_is_ended_and_leaves_no_lease(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with driver(scene.folder) as process:
        assert scene.stop() == 0
        name = f"process {process.pid} on {socket.gethostname()}"
        assert capsys.readouterr().out.splitlines() == [
            f"stopped: asked {name} to end",
            f"stopped: {name} has ended; the next run goes on from the last checkpoints",
        ]
        assert process.wait() != 0
    newest = scene.folder.attempts.newest()
    assert newest is not None
    assert newest.end is not None
    assert scene.stop() == 0
    message = f"stopped: nothing is running in {scene.store.root}\n"
    assert capsys.readouterr().out == message


def test_a_sweep_that_was_edited_while_it_ran_is_found_by_its_name(scene: Scene) -> None:
    with driver(scene.folder) as process:
        scene.file.write_text("name: stopped\nstages: {pretrain: {kind: nothing}}\n")
        assert scene.stop() == 0
        assert process.wait(5) != 0


def test_a_process_that_has_the_number_of_a_dead_driver_is_left_alone(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("sleep", "60") as process:
        dead = driver_name().replace(f"-{os.getpid()}-", f"-{process.pid}-")
        scene.folder.attempts.take(1, dead, {"started": time.time() - 1000})
        with scratch_folder(scene.store, dead, ["stopped"]):
            path = scene.store.driver(dead) / RUN
            path.write_text(path.read_text().replace('"started": ', '"started": 0.'))
            assert scene.stop() == 0
        assert "nothing is running" in capsys.readouterr().out
        assert process.poll() is None


def test_a_driver_that_has_no_stage_yet_is_found_by_its_record(scene: Scene) -> None:
    """As while Ray starts."""
    with started("sleep", "60") as process:
        name = driver_name().replace(f"-{os.getpid()}-", f"-{process.pid}-")
        with scratch_folder(scene.store, name, ["another", "stopped"]):
            assert scene.stop() == 0
        assert process.wait(5) == -15


def test_a_driver_of_another_sweep_that_shares_a_stage_goes_on(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with driver(scene.folder) as process:
        newest = scene.folder.attempts.newest()
        assert newest is not None
        with scratch_folder(scene.store, newest.owner, ["another"]):
            assert scene.stop() == 0
        assert "nothing is running" in capsys.readouterr().out
        assert process.poll() is None


def test_a_driver_on_another_machine_is_named(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with scene.folder.begin("far-away-4711-0123abcdef", {}):
        assert scene.stop() == 1
    message = "process 4711 on far-away runs it; end it there, this machine can't"
    assert capsys.readouterr().out == f"stopped: {message}\n"


def test_a_sweep_that_has_not_run(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.file.write_text(SWEEP.replace("stopped", "stoped"))
    assert scene.stop() == 2
    message = f"no sweep 'stoped' has run in {scene.store.root}; did you mean 'stopped'?"
    assert capsys.readouterr().err == f"error: {message} (allowed: stopped)\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": is empty, needs a mapping with name and stages"),
        ("stages: {}", ":1: name: is missing"),
        ("stages: {}\nname: 5", ":2: name: found 5, needs text"),
    ],
)
def test_a_file_without_a_name(
    scene: Scene, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.file.write_text(content)
    assert scene.stop() == 2
    assert capsys.readouterr().err == f"error: {scene.file}{message}\n"


def test_what_is_written_while_the_folder_is_removed_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = shutil.rmtree, []

    def beside_a_writer(folder: Path, **options: Any) -> None:
        remove(folder, **options)
        calls.append(folder)
        if len(calls) < 3:  # a worker writes its last result
            (folder / "run").mkdir(parents=True)
            (folder / "run" / "result.json").write_text("{}")

    monkeypatch.setattr(shutil, "rmtree", beside_a_writer)
    with scratch_folder(Store(tmp_path), "driver", ["sweep"]) as folder:
        assert not stop_request(Store(tmp_path), "driver").is_made()
    assert not folder.exists()
    assert len(calls) == 3
