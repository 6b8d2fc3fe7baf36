"""Stages of two workers each through a real Ray: the numbers, and an error, are those of one.

Of trainings, tests/faults/test_workers_lost.py has the same for both strategies, after kills.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from workers_sweep import alone, worker_processes

from fope_lab.orchestration.cluster_address import RAY_DEFAULTS, prepare_environment
from fope_lab.orchestration.trial import KEY, OWNER, SUPERSEDE, run_until_ended
from fope_lab.processor import processor
from fope_lab.stages import Pretrain
from fope_lab.store import StageFolder, Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage
from trainers.distributed import sizes_to_go_on, with_size

SWEEP = """
name: workers
stages:
  alone: &training
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: kerple
    data:
      length: 32
      mix: [{corpus: {files: text.txt}, weight: 0.5}, {task: passkey, weight: 0.5}]
    train: {tokens: 2560, batch_tokens: 512, micro_batch_tokens: 128, learning_rate: 1e-2}
  perplexity: {kind: perplexity, from: alone, corpus: {files: text.txt}, lengths: [16, 32],
               tokens: 2048, batch_tokens: 256, resources: {workers: 2}}
  diverges:
    <<: *training
    resources: {workers: 2, strategy: fsdp}
    train: {tokens: 2560, batch_tokens: 512, micro_batch_tokens: 128, learning_rate: 1e30,
            gradient_clip: 1e30}
"""


def write_sweep(folder: Path, sweep: str = SWEEP) -> Path:
    """The file of a sweep, with the text that it reads beside it."""
    text = "The quick brown fox jumps over the lazy dog, and the dog looks on.\n\n"
    (folder / "text.txt").write_text("".join(text.replace("dog", f"dog {i}") for i in range(400)))
    (folder / "workers.yaml").write_text(sweep)
    return folder / "workers.yaml"


@dataclass
class Ran:
    """What the trials of a sweep left, one after another in one Ray."""

    store: Store
    stages: list[Stage]

    def stage(self, name: str) -> Stage:
        [stage] = [one for one in self.stages if one.section == name]
        return stage

    def folder(self, name: str) -> StageFolder:
        stage = self.stage(name)
        return self.store.folder(stage.kind, stage.key)


def run_trials(rank: int, path: Path, store: Store) -> None:
    """A process with a Ray of its own, in which the trials of a sweep run."""
    os.environ.pop("RAY_ADDRESS", None)
    prepare_environment("local")
    import ray

    variables = {"OMP_NUM_THREADS": "1", **RAY_DEFAULTS}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    stages = load_sweep(path).stages
    by_key = {stage.key: stage for stage in stages}
    for key in by_key:
        run_until_ended({KEY: key, OWNER: "test", SUPERSEDE: None}, by_key, store)
    ray.shutdown()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("workers")
    path, store = write_sweep(folder), Store.create(folder / "store")
    torch.multiprocessing.spawn(run_trials, (path, store), nprocs=1)
    return Ran(store, load_sweep(path).stages)


@pytest.mark.cluster
def test_two_workers_evaluate_as_one_does(ran: Ran, tmp_path: Path) -> None:
    folder = ran.folder("perplexity")
    assert folder.is_done(), folder.state()
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
    [one] = [one for one in ran.store.execution_records() if one["planned_workers"] == 2]
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
    assert "step.py" in failure["traceback"] or "loop.py" in failure["traceback"]
    assert folder.attempts.newest_token() == 1


def test_fewer_workers_take_parts_as_small_as_all_would(tmp_path: Path) -> None:
    for given, expected in [("micro_batch_tokens: 128, ", 128), ("", 256)]:
        path = write_sweep(tmp_path, SWEEP.replace("micro_batch_tokens: 128, ", given))
        [spec] = [stage.spec for stage in load_sweep(path).stages if stage.section == "diverges"]
        assert isinstance(spec, Pretrain)
        fewer = with_size(spec, 1)
        assert isinstance(fewer, Pretrain)
        assert fewer.train.micro_batch_tokens == expected
        assert fewer.resources.size == 1
        assert with_size(spec, 2) is spec
        for workers, rows, sizes in [(8, 16, [8, 4, 2, 1]), (4, 12, [4, 3, 2, 1]), (4, 10, [2, 1])]:
            train = dataclasses.replace(spec.train, batch_tokens=rows * 32)
            resources = dataclasses.replace(spec.resources, workers=workers)
            shared = dataclasses.replace(spec, train=train, resources=resources)
            assert sizes_to_go_on(shared) == sizes
