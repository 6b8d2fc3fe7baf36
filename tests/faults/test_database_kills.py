"""Processes killed while they make MLflow's database: `sync` finds none, or mends what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fope_lab.store.root import Store
from fope_lab.sweep import Plan, load_sweep, plan
from fope_lab.tracking.tracker import Tracker

pytestmark = pytest.mark.faults

SWEEP = """
name: killed
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, hidden_size: 32, num_heads: 2, head_dim: 16}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 4096, batch_tokens: 1024, learning_rate: 1e-3}
"""
SYNC = [sys.executable, "-m", "fope_lab.cli", "sync", "--store"]


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    """A finished sweep, recorded for `sync`, without a database."""
    path, store = tmp_path / "sweep.yaml", Store(tmp_path / "store")
    path.write_text(SWEEP)
    found = plan(load_sweep(path), store)
    for stage in found.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.writer.log(1, {"loss": 1.0})
            attempt.finish({})
    Tracker(store.root).log_report(found, {}, {})
    return found


def assert_synced(store: Path, planned: Plan) -> list[str]:
    """`sync` succeeds and MLflow has every run; returns the lines that it printed."""
    done = subprocess.run([*SYNC, str(store)], text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    program = "import sys; from mlflow import MlflowClient as C; c = C('sqlite:///' + sys.argv[1]);"
    program += (
        "e = c.get_experiment_by_name('killed'); print(len(c.search_runs([e.experiment_id])))"
    )
    command = [sys.executable, "-c", program, str(store / "mlflow.db")]
    runs = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    assert int(runs) == len(planned.sweep.stages) + 1
    assert not [path for path in store.iterdir() if "making" in path.name]
    return done.stdout.splitlines()


@pytest.mark.parametrize("size", [0, 600_000])  # of about 950,000 bytes
def test_killed_while_it_makes_the_database(tmp_path: Path, planned: Plan, size: int) -> None:
    store = tmp_path / "store"
    process = subprocess.Popen([*SYNC, str(store)], stdout=subprocess.PIPE, text=True)
    made = re.compile(r"\.mlflow\.db\.making-[0-9a-f]+")
    while not any(
        path.stat().st_size >= size for path in store.iterdir() if made.fullmatch(path.name)
    ):
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (store / "mlflow.db").exists()
    assert assert_synced(store, planned) == ["up to date: killed"]
