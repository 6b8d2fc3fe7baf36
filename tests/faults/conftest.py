"""A small sweep that runs long enough to be killed in the middle, and ways to do so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tracking"))

from tracking_scene import empty_database, scene

from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage

__all__ = ["empty_database", "scene"]

SWEEP = """
name: faults
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 204800, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 20,
            log_every: 1}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 64],
               tokens: 4096}
grid:
  pretrain.embedding: [rope, nope, alibi]
"""
"""Each training has 400 steps: some seconds, in which a test can come between two of them."""
MODEL = SWEEP[SWEEP.index("  pretrain:") : SWEEP.index("    train:")]
"""How the section of a training begins; its `train` comes next."""
SHORT = SWEEP.replace("204800", "20480").replace("[rope, nope, alibi]", "[rope, nope]")
"""For what is not killed while it trains."""

HERE = Path(__file__).parent
LONGEST = ("test_kills", "submit", "workers", "hard", "ray", "seed", "server", "sharded")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: all processes end at about the same time."""
    here = [item for item in items if item.path.parent == HERE]
    for item in items:
        if item.get_closest_marker("faults") and item.path.parent != HERE:
            raise pytest.UsageError(f"{item.nodeid} is marked faults, but not in tests/faults")

    def place(item: pytest.Item) -> int:
        found = (i for i, word in enumerate(LONGEST) if word in item.path.stem)
        return next(found, len(LONGEST))

    items[:] = sorted(here, key=place) + [item for item in items if item.path.parent != HERE]


class Run:
    """A sweep with a store of its own, and `fope-lab run` as a process on it."""

    def __init__(self, folder: Path, sweep: str = SWEEP) -> None:
        self.sweep = folder / "sweep.yaml"
        self.store = Store(folder / "store")
        self.processes: list[subprocess.Popen[str]] = []
        self.write(sweep)

    def write(self, sweep: str) -> None:
        """Run another sweep from now on."""
        self.sweep.write_text(sweep)
        self.stages = load_sweep(self.sweep).stages

    @property
    def command(self) -> list[str]:
        """The words of `fope-lab run` on the sweep."""
        words = [sys.executable, "-m", "fope_lab.cli", "run", str(self.sweep)]
        return [*words, "--store", str(self.store.root)]

    def start(self) -> subprocess.Popen[str]:
        """`fope-lab run` in the background."""
        process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
        )
        self.processes.append(process)
        return process

    def finish(self, process: subprocess.Popen[str] | None = None) -> str:
        """Wait for a run (a new one, if none is given) to end with exit code 0; its output."""
        process = process or self.start()
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        return output

    def folder(self, stage: Stage) -> StageFolder:
        return self.store.folder(stage.kind, stage.key)

    def of_kind(self, kind: str) -> list[StageFolder]:
        return [self.folder(stage) for stage in self.stages if stage.kind == kind]

    def wait(self, condition: Callable[[], bool], seconds: float = 240) -> None:
        """Poll until something is so."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "it did not come to that"
            for process in self.processes[-1:]:
                if process.poll() is not None:
                    pytest.fail(f"the run ended early: {process.communicate()[0]}")
            time.sleep(0.02)

    def training(self) -> list[StageFolder]:
        """The training stages that are under way: with a checkpoint, but not done."""
        return [f for f in self.of_kind("pretrain") if f.checkpoint() and not f.is_done()]

    def attempts(self) -> dict[str, int]:
        return {stage.key: self.folder(stage).attempts.newest_token() for stage in self.stages}

    def assert_complete(self, failed: str | None = None) -> None:
        """Every stage is done, but for the section that has failed, and has each of its rows once,
        in the store and in MLflow."""
        from mlflow import MlflowClient

        for stage in self.stages:
            assert self.folder(stage).is_done() == (stage.section != failed), stage.label
        trainings = [stage for stage in self.stages if stage.kind == "pretrain"]
        for stage in trainings:
            steps = [row.step for row in self.folder(stage).rows() if "loss" in row.values]
            assert steps == list(range(1, stage.spec.train.steps + 1))
        client = MlflowClient(f"sqlite:///{self.store.root}/mlflow.db")
        experiment = client.get_experiment_by_name("faults")
        stages = "tags.kind != 'cell'"  # of cells there are as many as the report has
        runs = client.search_runs([experiment.experiment_id], stages, max_results=1000)
        keys = Counter(run.data.tags.get("key", "summary") for run in runs)
        assert keys == Counter([stage.key for stage in self.stages] + ["summary"])
        for run in runs:
            for name in run.data.metrics:
                history = client.get_metric_history(run.info.run_id, name)
                counts = Counter(point.step for point in history)
                assert max(counts.values()) == 1, (run.info.run_name, name)
        ids = {run.data.tags.get("key"): run.info.run_id for run in runs}
        for stage in trainings:
            losses = client.get_metric_history(ids[stage.key], "loss")
            assert len(losses) >= stage.spec.train.steps


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, by drivers too
    yield run
    signal.signal(signal.SIGHUP, before)
    for process in run.processes:
        if process.poll() is None:
            process.kill()
            process.communicate()
