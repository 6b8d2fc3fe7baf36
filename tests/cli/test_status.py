"""`fope-lab status`: who runs a sweep, what failed and why, for people and for programs."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import kept_sweep
import pytest

from fope_lab.cli import main
from fope_lab.orchestration.drivers import scratch_folder
from fope_lab.store.attempts import driver_name
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.ledger import Ledger

SWEEP = kept_sweep.SWEEP.partition("grid:")[0]
SWEEP = SWEEP.replace("name: kept", "name: NAME").replace("embedding: rope", "embedding: EMBEDDING")
ERROR = "the first line\nand the second"


class Scene:
    """Two recorded sweeps; the training of the first has failed."""

    def __init__(self, folder: Path) -> None:
        self.store, self.files = Store.create(folder / "store"), []
        for name, embedding in {"first": "rope", "second": "nope"}.items():
            file = folder / f"{name}.yaml"
            file.write_text(SWEEP.replace("NAME", name).replace("EMBEDDING", embedding))
            Ledger(self.store, "none").save_outline(plan(load_sweep(file), self.store))
            self.files.append(str(file))
        training, _ = load_sweep(Path(self.files[0])).stages
        self.folder = self.store.folder(training.kind, training.key)
        with pytest.raises(ValueError, match="first"), self.folder.begin("test", {}):
            raise ValueError(ERROR)

    def status(self, *words: str) -> int:
        return main(["status", *words, "--store", str(self.store.root)])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)["sweeps"]


def test_a_program_reads_whole_errors_and_who_runs_a_sweep(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with scratch_folder(scene.store, driver_name(), ["second"]):
        assert scene.status(*scene.files, "--json") == 1
        first, second = read(capsys)
    assert (first["name"], first["drivers"]) == ("first", [])
    training, passkey = first["stages"]
    assert (training["state"], training["error"]) == ("failed", ERROR)
    assert Path(training["log"]).read_text().count("the second")
    assert (passkey["state"], passkey["reason"]) == ("blocked", "pretrain[seed=0] failed")
    assert {state: n for state, n in first["counts"].items() if n} == {"failed": 1, "blocked": 1}
    [driver] = second["drivers"]
    assert (driver["pid"], driver["sweeps"]) == (os.getpid(), ["second"])
    assert {stage["state"] for stage in second["stages"]} == {"not started"}


def test_people_read_who_runs_a_sweep_and_each_cause_once_at_the_end(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    with scratch_folder(scene.store, driver_name(), ["second"]):
        assert scene.status(*scene.files) == 1
    output = capsys.readouterr().out
    assert f"first: nothing is running it; store {scene.store.root}\n" in output
    assert f"second: run by process {os.getpid()} on " in output
    log = scene.folder.paths.log
    cause = f"failed pretrain[seed=0]: {ERROR} (log: {log})\nblocked by them: 1 stage\n"
    assert output.endswith(cause)


def test_what_lacks_its_data_is_blocked_as_a_plan_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, file = Store.create(tmp_path / "store"), tmp_path / "tasks.yaml"
    tasks = "  tasks: {kind: downstream, from: pretrain, tasks: [hellaswag]}\n"
    file.write_text(SWEEP.replace("EMBEDDING", "rope") + tasks)
    Ledger(store, "none").save_outline(plan(load_sweep(file), store))
    assert main(["status", str(file), "--store", str(store.root), "--json"]) == 0
    [sweep] = read(capsys)
    states = {stage["name"]: stage["state"] for stage in sweep["stages"]}
    assert main(["plan", str(file), "--store", str(store.root), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["stages"]
    blocked = {stage["name"] for stage in planned if stage["state"] == "blocked"}
    assert blocked
    assert {name for name, state in states.items() if state == "blocked"} == blocked


def test_a_watched_sweep_is_shown_until_nothing_runs_it(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fope_lab.orchestration.live_view.LOOK_SECONDS", 0.05)
    began, seconds = time.monotonic(), 0.5
    run = contextlib.ExitStack()
    run.enter_context(scratch_folder(scene.store, driver_name(), ["second"]))
    threading.Timer(seconds, run.close).start()
    assert scene.status(scene.files[1], "--watch") == 0
    assert time.monotonic() - began >= seconds
    assert "second: nothing is running it" in capsys.readouterr().out


def test_json_is_not_watched(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.status(scene.files[0], "--watch", "--json") == 2
    message = "error: --json: can't be used together with --watch\n"
    assert capsys.readouterr().err == message


def test_the_list_of_a_store_as_json(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "list", "--store", str(scene.store.root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["store"] == str(scene.store.root)
    [stage] = found["stages"]
    assert (stage["name"], stage["state"], stage["sweeps"]) == (
        "pretrain[seed=0]", "failed", ["first"],
    )  # fmt: skip
    assert stage["path"] == str(scene.folder.path)
    assert stage["bytes"] == sum(
        f.stat().st_size for f in scene.folder.path.rglob("*") if f.is_file()
    )


def test_stages_that_wait_or_are_done_share_a_row_where_there_are_very_many(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*words: str) -> list[list[str]]:
        assert scene.status(scene.files[0], *words) == 1
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    every = rows()
    monkeypatch.setattr("fope_lab.cli.render.status.MANY", 1)
    assert rows("--all") == every
    shared = rows()
    assert shared[3] == every[3], "it has failed"
    assert shared[4] == ["passkey:", "1", "stage", "blocked"]
    assert "--all lists every stage." in " ".join(shared[5])
