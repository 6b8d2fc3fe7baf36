"""What this machine can't hold: a note, because the sweep may be meant for another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_files import PRETRAIN, changed, load, write

from fope_lab.cli import main
from fope_lab.planning import memory_fit as this_machine
from fope_lab.planning.memory_fit import gpu_count, machine_note

GPU: dict[str, Any] = {"name": "x", "stages": {"p": changed(PRETRAIN, {"resources.gpus": 1})}}
NOTE = "x: this machine can't hold one of its stages: p needs 1 GPU, and there are 0"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(this_machine, "NVIDIA", tmp_path / "gpus")
    monkeypatch.setattr(this_machine, "OTHER_GPUS", (tmp_path / "other",))
    for name in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"resources.gpus": 0.5}, "p needs 0.5 GPUs, and there are 0"),
        ({"resources.cpus": 10_000}, "p needs 10000 CPUs, and there are "),
        ({"model": {"scale": "1.2b", "num_layers": 4_000}}, "p needs "),
    ],
)
def test_what_stages_need(tmp_path: Path, changes: dict[str, Any], expected: str | None) -> None:
    sweep = load(tmp_path, {"name": "x", "stages": {"p": changed(PRETRAIN, changes)}})
    note = machine_note(sweep, sweep.stages)
    assert (note is None) == (expected is None)
    if expected is not None:
        assert expected in (note or "")
        assert machine_note(sweep, ()) is None


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gpu_count() == 0
    (tmp_path / "other").touch()
    assert gpu_count() is None
    for i in range(2):
        (tmp_path / "gpus" / f"0000:0{i}").mkdir(parents=True)
    assert gpu_count() == 2
    for visible, expected in (("1", 1), ("", 0), ("-1", 0), ("0,1,2", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpu_count() == expected


def test_validate_and_plan_say_so_and_refuse_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(write(tmp_path / "sweep.yaml", GPU))
    store = ["--store", str(tmp_path / "store")]
    assert main(["validate", file]) == 0
    output = capsys.readouterr()
    assert NOTE in output.err
    assert NOTE not in output.out
    assert main(["plan", file, *store]) == 0
    assert NOTE in capsys.readouterr().out
    for elsewhere in (["--device", "a6000"], ["--gpus", "8"]):
        assert main(["plan", file, *store, *elsewhere]) == 0
        assert NOTE not in capsys.readouterr().out
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert main(["validate", file]) == 0
    assert "can't hold" not in capsys.readouterr().err
