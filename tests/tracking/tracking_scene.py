"""Sweeps whose stages are written by hand, and a real MLflow: SQLite, and a server of our own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.writer import Row
from fope_lab.sweep import Plan, load_sweep, plan
from fope_lab.sweep.graph import Stage
from fope_lab.tracking.database import prepare
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uris import default_uri

STAGES = """stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, hidden_size: 32, num_heads: 2, head_dim: 16}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 4096, batch_tokens: 1024, learning_rate: 1e-3}
"""
SWEEP = """
name: {name}
description: Two embeddings.
seeds: [{seeds}]
{stages}
  perplexity: {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [64, 128, 256]}}
grid:
  pretrain.embedding: [{embeddings}]
"""
CURVE = {64: 9.5, 128: 11.25, 256: 80.0}
"""The perplexity by length of the evaluations in `all_done`."""


class Scene:
    """A store, an MLflow, and sweeps over them."""

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.uri = uri or default_uri(self.store.root)
        self.tracker = Tracker(self.store.root, uri)

    def plan(
        self,
        name: str = "first",
        embeddings: str = "rope, nope",
        *,
        seeds: str = "0",
        grid: str = "",
    ) -> Plan:
        text = SWEEP.format(name=name, seeds=seeds, stages=STAGES, embeddings=embeddings)
        return self.plan_of(f"{text}  {grid}\n", name)

    def plan_of(self, text: str, name: str = "first") -> Plan:
        """The plan of a sweep with this text."""
        path = self.root / f"{name}.yaml"
        path.write_text(text)
        return plan(load_sweep(path), self.store)

    def folder(self, stage: Stage) -> StageFolder:
        return self.store.folder(stage.kind, stage.key)

    def report(
        self, plan: Plan, files: Mapping[str, bytes], numbers: Mapping[tuple[str, ...], float]
    ) -> None:
        """Send a report, as a run does at its end."""
        self.tracker.log_report(plan, files, numbers)
        self.tracker.project(plan)

    def finish(self, plan: Plan) -> Plan:
        """Do the work of each stage that is not done."""
        for stage in plan.sweep.stages:
            if not self.folder(stage).is_done():
                finish(self.folder(stage))
        return plan

    def all_done(self) -> Plan:
        """A sweep whose stages are done; those that measure nothing leave a checkpoint."""
        plan = self.plan()
        for stage in plan.sweep.stages:
            if stage.kind == "perplexity":
                measure(self.folder(stage), CURVE)
            else:
                finish(self.folder(stage), checkpoint=True)
        return plan

    def planned(self, kind: str = "pretrain") -> tuple[Plan, Stage]:
        """A plan, and its stage of a kind with rope."""
        plan = self.plan()
        return plan, of(plan, kind)

    def sent(self) -> tuple[Plan, Stage]:
        """A plan and its finished training, which MLflow has."""
        plan, stage = self.planned()
        finish(self.folder(stage))
        self.tracker.project(plan)
        return plan, stage

    def run_ids(self, plan: Plan) -> dict[str, str]:
        """The ids of the runs that the store has recorded, by the keys of the stages."""
        return {key: run.run_id for key, run in self.tracker.runs(plan.sweep).items()}

    def restart(self) -> Tracker:
        """A tracker that knows nothing but what is on disk, as in a new process."""
        default = self.uri == default_uri(self.store.root)
        self.tracker = Tracker(self.store.root, None if default else self.uri)
        return self.tracker

    def runs(self, name: str = "first") -> list[Run]:
        """The active runs of an experiment."""
        client = MlflowClient(tracking_uri=self.uri)
        experiment = client.get_experiment_by_name(name)
        return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))

    def run(self, stage: Stage, name: str = "first") -> Run:
        """The one active run of a stage."""
        (run,) = [run for run in self.runs(name) if run.data.tags.get("key") == stage.key]
        return run

    def files(self, stage: Stage) -> list[str]:
        """The names of the artifacts of a stage's run."""
        client = MlflowClient(tracking_uri=self.uri)
        return [file.path for file in client.list_artifacts(self.run(stage).info.run_id)]

    def points(self, run: Run) -> list[tuple[str, int, int, str]]:
        """Everything the run has: (name, step, timestamp, value), the value so that NaN is NaN."""
        client = MlflowClient(tracking_uri=self.uri)
        return sorted(
            (name, point.step, point.timestamp, repr(point.value))
            for name in run.data.metrics
            for point in client.get_metric_history(run.info.run_id, name)
        )


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with MLflow's tables: making them takes longer than most tests here."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    prepare(path)
    return path


@pytest.fixture
def scene(tmp_path: Path, empty_database: Path) -> Scene:
    """An empty store with an empty database."""
    (tmp_path / "store").mkdir()
    shutil.copy(empty_database, tmp_path / "store" / "mlflow.db")
    return Scene(tmp_path)


def of(plan: Plan, kind: str, embedding: str | None = "rope") -> Stage:
    """The stage of a kind with an embedding."""
    return next(s for s in plan.sweep.stages if s.kind == kind and s.embedding == embedding)


def expected(rows: list[Row]) -> list[tuple[str, int, int, str]]:
    """What MLflow should have of rows that are finite."""
    return sorted(
        (name, row.step, row.timestamp, repr(value))
        for row in rows
        for name, value in row.values.items()
    )


def finish(folder: StageFolder, steps: int = 3, checkpoint: bool = False) -> None:
    """Do a stage's work."""
    with folder.begin("test", {}) as attempt:
        for step in range(1, steps + 1):
            attempt.writer.log(step, {"loss": 1.0 / step, "learning_rate": 0.1})
        if checkpoint:
            attempt.writer.save_checkpoint(steps, write_nothing)
        attempt.finish({"steps": steps})


def measure(folder: StageFolder, curve: Mapping[int, float]) -> None:
    """Do the work of an evaluation: a perplexity at each length."""
    measured = [
        Measurement(name="perplexity_by_length", x=length, value=value, stderr=0.5)
        for length, value in curve.items()
    ]
    with folder.begin("test", {}) as attempt:
        for one in measured:
            attempt.writer.log(one.x or 0, one.row)
        attempt.finish(ResultRecord(metrics=tuple(measured)).as_json())


def write_nothing(path: Path) -> None:
    """A checkpoint's content."""
    (path / "model").write_bytes(b"model")


def execute(path: Path, *statements: str) -> None:
    """Execute SQL in a SQLite database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


class LiveServer:
    """`fope_lab.tracking.serve` in a process of its own, that can be killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str]

    def start(self) -> str:
        """Start it and return the first line that it prints once it answers."""
        program = "import sys; from pathlib import Path; from fope_lab.tracking.ui import serve; "
        program += "sys.exit(serve(Path(sys.argv[1]), port=int(sys.argv[2])))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(self.root), str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        with self.process.stdout as output:
            return output.readline()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send our process a signal: its exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL MLflow's processes, which form a group of their own; ours then ends as well."""
        os.killpg(self.mlflow_group(), signal.SIGKILL)
        self.process.wait(30)

    def mlflow_group(self) -> int:
        """The id of the process group of MLflow's processes."""
        listed = subprocess.run(
            ["ps", "-eo", "ppid=,pgid="], check=True, stdout=subprocess.PIPE, text=True
        )
        rows = (line.split() for line in listed.stdout.splitlines())
        return next(int(group) for parent, group in rows if int(parent) == self.process.pid)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds
