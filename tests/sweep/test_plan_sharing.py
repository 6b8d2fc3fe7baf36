"""What several sweeps cost together: what they share is counted once, and what that saves."""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sweep_files import PRETRAIN, changed, write

from fope_lab.cli import main
from fope_lab.config.devices import cores, device_named
from fope_lab.planning.estimate import PlanEstimate, estimate_plans, requested_stages
from fope_lab.planning.forecast import workload_of
from fope_lab.planning.plan_table import MANY, print_plan
from fope_lab.planning.schedule import Machines
from fope_lab.store.root import Store
from fope_lab.sweep import Sweep, SweepError, load_sweep, plan

READING = {"kind": "passkey", "from": "pretrain", "lengths": [32, 64], "trials": 10}
READING |= {"form": "symbolic"}


def sweep(folder: Path, name: str, embeddings: list[str], **other: Any) -> Sweep:
    """A pretraining and its passkeys, on a GPU each, under two seeds."""
    content = {
        "name": name,
        "seeds": [0, 1],
        "stages": {
            "pretrain": {**PRETRAIN, "resources": {"gpus": 1}},
            "passkey": {**READING, "resources": {"gpus": 0.5}},
        },
        "grid": {"pretrain.embedding": embeddings},
    }
    return load_sweep(write(folder / f"{name}.yaml", content | other))


@pytest.fixture
def pair(tmp_path: Path) -> list[Sweep]:
    """Two sweeps of three embeddings each, two of which they share."""
    return [
        sweep(tmp_path, "one", ["rope", "nope", "alibi"]),
        sweep(tmp_path, "two", ["rope", "nope", "fope"]),
    ]


def together(sweeps: list[Sweep], **options: Any) -> PlanEstimate:
    return estimate_plans([plan(one) for one in sweeps], **options)


def test_equal_stages_of_two_sweeps_are_one(pair: list[Sweep]) -> None:
    """Each asks for 6 pretrainings, 6 passkeys and 1 prepare-data; 4, 4 and 1 are shared."""
    content = together(pair, device="a6000", price=2.0).as_json()
    totals = content["totals"]
    assert (totals["asked"], totals["stages"]) == (26, 17)
    training, reading = (
        next(row for row in content["stages"] if row["kind"] == kind)
        for kind in ("pretrain", "passkey")
    )
    saved = totals["saved"]
    assert saved["stages"] == 9
    assert saved["tokens"] == 4 * (training["tokens"] + reading["tokens"])
    assert saved["flops"] == pytest.approx(4 * (training["flops"] + reading["flops"]))
    hours = 4 * (training["gpu_hours"] + reading["gpu_hours"])
    assert saved["gpu_hours"] == pytest.approx(hours)
    assert saved["cost"] == pytest.approx(2 * hours)
    assert totals["tokens"] == sum(row["tokens"] or 0 for row in content["stages"])
    for one in content["sweeps"]:
        assert (one["asked"], one["stages"], one["shared"]["stages"]) == (13, 13, 9)
        assert one["saved"]["stages"] == 0
        assert one["shared"]["gpu_hours"] == pytest.approx(hours)
    assert [one["name"] for one in content["sweeps"]] == ["one", "two"]
    assert sum(one["tokens"] for one in content["sweeps"]) - saved["tokens"] == totals["tokens"]


def test_equal_stages_of_one_sweep_are_one(tmp_path: Path) -> None:
    """A default that is spelt out in one cell asks for the same stage again."""
    embeddings = ["rope", {"type": "rope", "base": 10000}]
    found = together([sweep(tmp_path, "one", embeddings)]).as_json()  # type: ignore[list-item]
    assert (found["totals"]["asked"], found["totals"]["stages"]) == (9, 5)
    assert found["totals"]["saved"]["stages"] == 4
    assert "sweeps" not in found


def test_what_a_file_asks_of_another_counts_once(tmp_path: Path) -> None:
    one = sweep(tmp_path, "one", ["rope", "nope"])
    two = load_sweep(
        write(
            tmp_path / "two.yaml",
            {"name": "two", "stages": {"passkey": {**READING, "from": "one.yaml#pretrain"}}}
            | {"grid": {"pretrain.embedding": ["rope", "nope"]}, "seeds": [0, 1]},
        )
    )
    names = [stage.section for stage in requested_stages(two)]
    assert sorted(names) == ["passkey"] * 4 + ["prepare-data"] + ["pretrain"] * 4
    totals = together([one, two]).as_json()["totals"]
    # The passkeys differ in resources alone, which are in no key.
    assert (totals["asked"], totals["stages"]) == (18, 9)


def test_money_and_hours_follow_from_seconds(pair: list[Sweep]) -> None:
    content = together(pair, device="a6000", price=1.5).as_json()
    rate = 0.35 * device_named("a6000").peak["float32"]
    for row in content["stages"]:
        gpus = {"pretrain": 1.0, "passkey": 0.5}.get(row["kind"], 0.0)
        if gpus:
            assert row["seconds"] == pytest.approx(row["flops"] / (rate * gpus))
            assert row["gpu_hours"] == pytest.approx(row["seconds"] * gpus / 3600)
            assert row["estimate"] == (
                "assumed: 35% of the peak of a6000, and neither start-up nor communication"
            )
        else:
            assert row["gpu_hours"] == 0.0
        assert row["cost"] == pytest.approx(1.5 * row["gpu_hours"])
    totals = content["totals"]
    for name in ("gpu_hours", "cost"):
        assert totals[name] == pytest.approx(sum(row[name] for row in content["stages"]))


def test_a_measured_gpu_is_the_device_where_none_is_named(
    pair: list[Sweep], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    [training] = [s for s in pair[0].stages if s.label == "pretrain[embedding=rope,seed=0]"]
    ran = {"device": "NVIDIA L4", "processor": "", "threads": 1, "workers": 1, "planned_workers": 1}
    with store.folder("pretrain", "elsewhere").begin("test", {}) as attempt:
        attempt.finish({}, ran | {"work": asdict(workload_of(training))})
    found = estimate_plans([plan(one, store) for one in pair], store)
    assert found.device == device_named("l4")
    rows = {row["name"]: row for row in found.as_json()["stages"]}
    assert rows[training.label]["estimate"] == "measured on l4: 1 training"
    assert rows[training.label]["gpu_hours"] > 0


def test_fewer_gpus_than_a_stage_needs_are_an_error(tmp_path: Path) -> None:
    one = sweep(tmp_path, "one", ["rope"])
    four = changed(
        {"name": "four", "stages": {"pretrain": PRETRAIN}},
        {"stages.pretrain.resources": {"gpus": 4}},
    )
    two = load_sweep(write(tmp_path / "four.yaml", four))
    with pytest.raises(SweepError, match=r"--gpus: found 2, needs at least the 4 that one stage"):
        together([one, two], gpus=2)
    assert together([one, two]).machines.gpus == 4


def test_the_command_takes_files_and_folders(
    pair: list[Sweep], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pair[0].path.parent
    store = ["--store", str(folder / "none")]
    assert main(["plan", str(folder), *store, "--json", "--device", "l4", "--price", "0.7"]) == 0
    of_folder = json.loads(capsys.readouterr().out)
    assert [one["path"] for one in of_folder["sweeps"]] == [str(one.path) for one in pair]
    assert of_folder["totals"]["asked"] == 26
    paths = [str(one.path) for one in pair]
    assert main(["plan", *paths, *store, "--json", "--device", "l4", "--price", "0.7"]) == 0
    assert json.loads(capsys.readouterr().out) == of_folder
    assert main(["plan", *paths, *store]) == 0
    assert "26 requested, 17 unique after sharing; saved: 9 stages" in capsys.readouterr().out
    assert main(["plan", *paths, str(folder), *paths, *store]) == 0  # each once
    assert "26 requested, 17 unique after sharing; saved: 9 stages" in capsys.readouterr().out
    assert not (folder / "none").exists()


@pytest.mark.parametrize("price", ["-1", "nan", "inf", "much"])
def test_a_price_is_a_number_of_dollars(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", "sweep.yaml", "--price", price])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert f"--price: found '{price}', needs a number of dollars, at least 0" in said


def test_which_machines_the_time_by_the_clock_is_for(tmp_path: Path, pair: list[Sweep]) -> None:
    """With a GPU named its cores are no matter; without GPUs, this machine's or those given."""
    named = together(pair, device="a6000")
    assert (named.machines.gpus, named.machines.cpus) == (1.0, math.inf)
    assert together(pair, device="a6000", gpus=8, cpus=3).machines == Machines(3, 8)
    on_cpu = load_sweep(
        write(
            tmp_path / "cpu.yaml",
            {"name": "cpu", "seeds": [0, 1, 2, 3]} | {"stages": {"pretrain": PRETRAIN}},
        )
    )
    assert together([on_cpu]).machines == Machines(cores(), 0)
    one, four = (together([on_cpu], cpus=cpus).wall.scheduled for cpus in (1, 4))
    assert one == pytest.approx(4 * four)


def printed(budget: PlanEstimate, **options: Any) -> list[str]:
    console = Console(width=250, file=io.StringIO())
    print_plan(budget, console, **options)
    return list(console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def test_many_stages_are_grouped_by_name(tmp_path: Path, pair: list[Sweep]) -> None:
    rates = [i * 1e-5 for i in range(1, 12)]
    grid = {"pretrain.embedding": ["rope", "nope"], "pretrain.train.learning_rate": rates}
    large = sweep(tmp_path, "large", [], grid=grid)
    found = together([large, *pair], device="a6000", price=1.0)
    assert len(found.stages) > MANY
    lines = printed(found)
    assert len(lines) < MANY
    [training] = [line for line in lines if line.startswith("pretrain ") and " 44 " in line]
    assert "44 run" in training
    assert any("--all lists every stage" in line for line in lines)
    for name in ("large", "one", "two"):
        assert any(line.startswith(f"{name} (") for line in lines)
    [sharing] = [line for line in lines if line.startswith("sharing: ")]
    assert f"{13 + 13 + 89} requested, {17 + 88} unique after sharing; saved: 10 stages" in sharing
    every = printed(found, every=True)
    assert sum(line.startswith("pretrain[") for line in every) == 44 + 12
    assert not any("--all" in line for line in every)
