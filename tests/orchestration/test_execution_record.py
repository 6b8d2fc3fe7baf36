"""What a finished stage says it ran on, as its trial records it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kept_sweep
import pytest
import torch

from fope_lab.config.devices import this_machine
from fope_lab.config.processor import processor
from fope_lab.orchestration.trial import Order, execution_record, run_until_ended
from fope_lab.planning.forecast import Workload, calibrate, workload_of
from fope_lab.stages.base import Resources
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from trainers.measures import Execution, execution_here

SWEEP = kept_sweep.PRETRAIN.replace(
    "1024, batch_tokens: 256", "2048, batch_tokens: 256, micro_batch_tokens: 64"
)


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    [found] = load_sweep(path).stages
    return found


def test_a_finished_stage_calibrates(tmp_path: Path, stage: Any) -> None:
    store = Store(tmp_path / "store")
    assert run_until_ended(Order(stage.key, {stage.key: stage}, "test"), store).is_done
    done = json.loads((store.folder(stage.kind, stage.key).path / "DONE").read_text())
    ran = done["ran"]
    assert (ran["device"], ran["workers"], ran["resumed"]) == ("cpu", 1, False)
    assert ran["threads"] == torch.get_num_threads()
    assert 0 < ran["cpu_seconds"] < 60
    work = Workload(**ran["work"])
    assert work == workload_of(stage)
    assert (work.tokens, work.flops) == (2048, stage.cost.flops)
    found = calibrate(store).estimate(work, this_machine())
    assert found.source == "measured on cpu: 1 training"
    assert found.seconds == pytest.approx(
        ran["cpu_seconds"] if ran["threads"] == 1 else done["seconds"]
    )


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 2), (2.5, 2), (0.5, 1)])
def test_torch_computes_with_a_thread_on_each_cpu(
    tmp_path: Path, stage: Any, cpus: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[-1])
    resources = dataclasses.replace(stage.spec.resources, cpus=cpus)
    stage = dataclasses.replace(stage, spec=dataclasses.replace(stage.spec, resources=resources))
    store = Store(tmp_path / "store")
    assert run_until_ended(Order(stage.key, {stage.key: stage}, "test"), store).is_done
    assert chosen == [threads]
    ran = json.loads((store.folder(stage.kind, stage.key).path / "DONE").read_text())["ran"]
    assert (ran["threads"], ran["work"]["threads"]) == (threads, threads)


@pytest.mark.parametrize(
    ("gpus", "available", "device"),
    [(0, True, "cpu"), (1, True, "NVIDIA L4"), (0.5, True, "NVIDIA L4"), (1, False, "cpu")],
)
def test_the_process_that_does_the_work_names_what_it_runs_on(
    monkeypatch: pytest.MonkeyPatch, gpus: float, available: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    found = execution_here(Resources(gpus=gpus), 4)
    assert found == Execution(device, processor(), torch.get_num_threads(), 4)


@pytest.mark.parametrize(("left", "tokens"), [(4, 512), (2, 1024), (1, 2048)])
@pytest.mark.parametrize("gpus", [0, 4])
def test_fewer_workers_than_planned_are_recorded_with_their_own_work(
    stage: Any, gpus: int, left: int, tokens: int
) -> None:
    """Four workers compute 64 tokens of each of 8 batches; one that is left does it four times."""
    resources = dataclasses.replace(stage.spec.resources, workers=4, gpus=gpus)
    spec = dataclasses.replace(stage.spec, resources=resources)
    execution = Execution("NVIDIA A40" if gpus else "cpu", "x", threads=1, workers=left)
    ran = execution_record(dataclasses.replace(stage, spec=spec), {"recorded": {}}, execution)
    assert {name: ran[name] for name in asdict(execution)} == asdict(execution)
    assert ran["planned_workers"] == 4
    work = ran["work"]
    assert (work["tokens"], work["share"]) == (tokens, min(1, gpus))
    assert work["flops"] == pytest.approx(stage.cost.flops / left)
