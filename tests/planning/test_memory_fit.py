"""Stages that can't fit a device: refused with reasons, and what would help does help. What this
machine can't hold is a note, because the sweep may be meant for another machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweep_files import BASE, PRETRAIN, changed, load, of, write

from fope_lab.cli import main
from fope_lab.config.devices import CPU, GIB, Device, device_named
from fope_lab.planning import memory_fit
from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.memory_fit import MARGIN, gpu_count, machine_note, why_too_large
from fope_lab.store.state import Status
from fope_lab.sweep import SweepError, load_sweep, plan

LARGE = yaml.safe_load("""
name: large
seeds: [0, 1]
stages:
  pretrain: {kind: pretrain, model: {scale: 1.2b}, embedding: rope,
             data: {corpus: c4, length: 512}, resources: {gpus: 1},
             train: {tokens: 1000000, batch_tokens: 32768, learning_rate: 0.001}}
  perplexity: {kind: perplexity, from: pretrain, corpus: c4, lengths: [512], tokens: 1000000,
               batch_tokens: 1048576, resources: {gpus: 1}}
""")


def device(memory: float, name: str = "made-up") -> Device:
    return Device(name, (), int(memory), {"float32": 1e13, "bfloat16": 1e13}, 0.35, "", "")


def changed_stage(folder: Path, name: str, changes: dict[str, Any]) -> Any:
    return of(load(folder, changed(LARGE, changes)), name)[0]


def test_the_margin_is_above_the_error_of_the_estimates(tmp_path: Path) -> None:
    """1.04 of what was measured at most, so that what fits exactly is not refused."""
    stage = changed_stage(tmp_path, "pretrain", {})
    assert MARGIN >= 1.04
    assert why_too_large(stage, device(stage.cost.memory / 1.04), None) is None
    assert why_too_large(stage, device(stage.cost.memory / (MARGIN * 1.01)), None) is not None


def test_where_nothing_is_known_nothing_is_refused(tmp_path: Path) -> None:
    stage = changed_stage(tmp_path, "pretrain", {})
    assert why_too_large(stage, None, device(1)) is None
    for other in load(tmp_path, BASE).stages:
        assert why_too_large(other, device(1), None) is None, "no GPU is asked for"


def test_a_refusal_says_what_is_needed_of_what_and_its_parts(tmp_path: Path) -> None:
    stage = changed_stage(tmp_path, "pretrain", {})
    reason = why_too_large(stage, device_named("a6000"), None)
    assert reason is not None
    pattern = r"needs ([\d.]+) GiB, a6000 has 48.0 GiB \((.*)\); .* would do"
    found = re.match(pattern, reason)
    assert found is not None
    assert float(found[1]) == pytest.approx(stage.cost.memory / GIB, abs=0.06)
    parts = {name: float(size) for name, size in re.findall(r"(\w+) ([\d.]+) GiB", found[2])}
    weights = 4 * stage.cost.parameters.total / GIB
    assert parts["weights"] == parts["gradients"] == pytest.approx(weights, abs=0.06)
    assert parts["optimizer"] == pytest.approx(2 * weights, abs=0.06)
    assert parts["activations"] > 10


HELP = re.compile(r"(train\.\S+|resources|batch_tokens)(?: (\d+|\{.*?\}))?")


@pytest.mark.parametrize("name", ["pretrain", "perplexity"])
@pytest.mark.parametrize("gib", [40, 24, 16, 12, 8])
def test_what_would_help_does(tmp_path: Path, name: str, gib: float) -> None:
    """Each way out, set in the sweep file, makes the stage fit."""
    place = device(gib * GIB)
    reason = why_too_large(changed_stage(tmp_path, name, {}), place, None)
    if reason is None:
        assert name == "perplexity"
        return
    helps = reason.split("); ", 1)[1]
    if "nothing" in helps:
        assert gib <= 8
        return
    assert 1 <= helps.count("would do") <= 2
    for way in helps.split(" or "):
        words = way.split(" would do")[0]
        changes: dict[str, Any] = {}
        for field, value in HELP.findall(words):
            gpus = re.search(r"gpus: (\d+)", value)
            if gpus:
                changes[f"stages.{name}.resources"] = {"gpus": int(gpus[1]), "strategy": "fsdp"}
            else:
                changes[f"stages.{name}.{field}"] = int(value) if value else True
        assert changes, words
        assert why_too_large(changed_stage(tmp_path, name, changes), place, None) is None, words


def test_workers_of_a_machine_share_its_memory(tmp_path: Path) -> None:
    """Without a GPU each worker takes its part of the same memory."""
    changes = {"stages.pretrain.resources": {"workers": 4}}
    stage = changed_stage(tmp_path, "pretrain", changes)
    alone = device(2 * stage.cost.memory, CPU)
    reason = why_too_large(stage, None, alone)
    assert reason is not None
    assert "for its 4 workers, this machine has" in reason


def test_a_gpu_is_not_to_be_had_on_a_cpu(tmp_path: Path) -> None:
    stage = changed_stage(tmp_path, "pretrain", {"stages.pretrain.resources.gpus": 4})
    assert why_too_large(stage, device_named(CPU), None) == "asks for 4 GPUs, and cpu has none"


def test_a_plan_blocks_what_does_not_fit_and_says_why(tmp_path: Path) -> None:
    planned = plan(load_sweep(write(tmp_path / "large.yaml", LARGE)))
    found = estimate_plans([planned], device="rtx-4090", price=1.0)
    rows = {row["name"]: row for row in found.as_json()["stages"]}
    row = rows["pretrain[seed=0]"]
    assert row["state"] == "blocked"
    assert row["reason"].startswith("needs ")
    assert (row["seconds"], row["gpu_hours"], row["cost"]) == (None, None, None)
    with pytest.raises(SweepError) as caught:
        found.require_fit()
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == 2, "one for each stage of the file, not one for each seed"
    assert re.search(r"large\.yaml: stages\.pretrain: needs .* \(2 stages\)$", messages[0])
    estimate_plans([planned], device="h200").require_fit()


def test_the_command_refuses_and_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "large.yaml", LARGE))
    store = ["--store", str(tmp_path / "store")]
    assert main(["plan", path, *store, "--device", "rtx-4090"]) == 2
    told = capsys.readouterr()
    assert "blocked" in told.out
    assert "error: " in told.err
    assert "stages.pretrain: needs" in told.err
    assert main(["plan", path, *store, "--device", "h200", "--price", "2.5"]) == 0
    assert "measured" not in capsys.readouterr().out
    assert main(["plan", path, *store, "--device", "h300"]) == 2
    assert "did you mean 'h200'?" in capsys.readouterr().err


def test_a_run_starts_nothing_that_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster whose GPUs are named, and on this machine by its own memory."""
    path = str(write(tmp_path / "large.yaml", LARGE))
    store = tmp_path / "store"
    arguments = ["run", path, "--store", str(store), "--address"]
    assert main([*arguments, "10.0.0.1:6379", "--device", "l4"]) == 2
    assert "stages.pretrain: needs" in capsys.readouterr().err
    content = changed(LARGE, {"stages.pretrain.resources": {}, "stages.perplexity.resources": {}})
    write(tmp_path / "large.yaml", content)
    monkeypatch.setattr(
        "fope_lab.orchestration.run_sweeps.this_machine", lambda: device(8 * GIB, CPU)
    )
    assert main([*arguments, "local"]) == 2
    assert "this machine has 8.0 GiB" in capsys.readouterr().err
    assert not (store / "pretrain").exists()


def test_what_waits_for_a_blocked_stage_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"stages.perplexity.batch_tokens": 512}
    path = write(tmp_path / "large.yaml", changed(LARGE, few))
    found = estimate_plans([plan(load_sweep(path))], device="rtx-4090")
    blocked = {key for key, state in found.states.items() if state.status is Status.BLOCKED}
    assert blocked == {stage.key for stage in of(found.plans[0].sweep, "pretrain")}
    waiting = found.waiting()
    assert {stage.section for stage in waiting} == {"perplexity"}
    assert main(["plan", str(path), "--store", str(tmp_path / "s"), "--device", "rtx-4090"]) == 2
    assert f"{len(waiting)} stages wait for a blocked stage" in capsys.readouterr().out
    assert estimate_plans([plan(load_sweep(path))], device="h200").waiting() == ()


# What this machine can't hold

GPU: dict[str, Any] = {"name": "x", "stages": {"p": changed(PRETRAIN, {"resources.gpus": 1})}}
NOTE = "x: this machine can't hold one of its stages: p needs 1 GPU, and there are 0"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_fit, "NVIDIA", tmp_path / "gpus")
    monkeypatch.setattr(memory_fit, "OTHER_GPUS", (tmp_path / "other",))
    for name in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_gpu")
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


@pytest.mark.usefixtures("no_gpu")
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


@pytest.mark.usefixtures("no_gpu")
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
