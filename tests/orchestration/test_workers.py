"""Stages of two workers each through a real Ray: the numbers, and an error, are those of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from workers_sweep import alone, losses, worker_processes

from fope_lab.processor import processor
from fope_lab.stages import Pretrain
from fope_lab.store import StageFolder, Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage
from trainers.distributed import possible_sizes, with_size

SWEEP = """
name: workers
stages:
  fsdp: &training
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: kerple
    data:
      length: 32
      mix: [{corpus: python-docs, weight: 0.5}, {task: passkey, weight: 0.5}]
    train: {tokens: 7680, batch_tokens: 512, micro_batch_tokens: 128, learning_rate: 1e-2,
            log_every: 1, checkpoint_every: 8, validate_every: 5, validation_tokens: 2048}
    resources: {workers: 2, strategy: fsdp}
  perplexity: {kind: perplexity, from: fsdp, corpus: python-docs, lengths: [16, 32], tokens: 4096,
               batch_tokens: 256, resources: {workers: 2}}
  diverges:
    <<: *training
    resources: {workers: 2, strategy: ddp}
    train: {tokens: 7680, batch_tokens: 512, learning_rate: 1e30, gradient_clip: 1e30}
"""


@dataclass
class Ran:
    """What a run left."""

    store: Store
    stages: list[Stage]
    output: str

    def stage(self, name: str) -> Stage:
        [stage] = [one for one in self.stages if one.section == name]
        return stage

    def folder(self, name: str) -> StageFolder:
        stage = self.stage(name)
        return self.store.folder(stage.kind, stage.key)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("workers")
    sweep = folder / "workers.yaml"
    sweep.write_text(SWEEP)
    done = subprocess.run(
        [sys.executable, "-m", "fope_lab.cli", "run", sweep, "--store", folder / "store"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
        check=False,
        timeout=400,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return Ran(Store(folder / "store"), load_sweep(sweep).stages, done.stdout + done.stderr)


@pytest.mark.cluster
def test_two_workers_train_as_one_does(ran: Ran, tmp_path: Path) -> None:
    """With FSDP. tests/faults/test_workers_lost.py has the same of both strategies, after kills."""
    folder = ran.folder("fsdp")
    assert folder.is_done(), ran.output
    [processes] = worker_processes(folder)
    assert len(set(processes)) == 2
    reference = alone(ran.stage("fsdp"), ran.stages, ran.store, tmp_path / "alone")
    assert losses(folder) == pytest.approx(losses(reference), abs=1e-5)
    ours, theirs = folder.result(), reference.result()
    assert ours is not None
    assert theirs is not None
    validation = [
        {metric["name"]: metric["value"] for metric in result["metrics"]}["validation_loss"]
        for result in (ours, theirs)
    ]
    assert validation[0] == pytest.approx(validation[1], abs=1e-5)
    assert ours["recorded"]["parameters"] == theirs["recorded"]["parameters"]


@pytest.mark.cluster
def test_two_workers_evaluate_as_one_does(ran: Ran, tmp_path: Path) -> None:
    folder = ran.folder("perplexity")
    assert folder.is_done(), ran.output
    [processes] = worker_processes(folder)
    assert len(set(processes)) == 2
    shutil.copytree(ran.store.root / "pretrain", tmp_path / "alone" / "pretrain")
    reference = alone(ran.stage("perplexity"), ran.stages, ran.store, tmp_path / "alone")
    assert folder.result() == reference.result()
    assert [(r.step, r.values) for r in folder.rows()] == [
        (r.step, r.values) for r in reference.rows()
    ]


@pytest.mark.cluster
def test_what_the_workers_ran_on_is_recorded(ran: Ran) -> None:
    records = [one for one in ran.store.execution_records() if one["planned_workers"] == 2]
    assert len(records) == 2, "the training and the evaluation"
    for one in records:
        assert (one["device"], one["processor"]) == ("cpu", processor())
        assert (one["workers"], one["threads"], one["work"]["threads"]) == (2, 1, 1)


@pytest.mark.cluster
def test_an_error_of_the_work_is_the_stages_failure_and_not_retried(ran: Ran) -> None:
    folder = ran.folder("diverges")
    failure = folder.failure()
    assert failure is not None
    assert failure["type"] == "NonFiniteError"
    assert "at step" in failure["error"]
    assert "On worker 0:" in failure["traceback"], "the worker's traceback is lost"
    assert "gradient_accumulation.py" in failure["traceback"] or "loop.py" in failure["traceback"]
    assert folder.attempts.newest_token() == 1
    assert f"failed diverges[seed=0]: {failure['error']}" in ran.output


def test_fewer_workers_take_parts_as_small_as_all_would(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    for given, expected in [("micro_batch_tokens: 128, ", 128), ("", 256)]:
        path.write_text(SWEEP.replace("micro_batch_tokens: 128, ", given))
        [spec] = [stage.spec for stage in load_sweep(path).stages if stage.section == "fsdp"]
        assert isinstance(spec, Pretrain)
        fewer = with_size(spec, 1)
        assert isinstance(fewer, Pretrain)
        assert fewer.train.micro_batch_tokens == expected
        assert fewer.resources.size == 1
        assert with_size(spec, 2) is spec


def test_workers_share_the_rows_evenly() -> None:
    assert possible_sizes(16, 8) == [8, 4, 2, 1]
    assert possible_sizes(12, 4) == [4, 3, 2, 1]
    assert possible_sizes(10, 4) == [2, 1]
