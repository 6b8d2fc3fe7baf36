"""Two small sweeps through the whole product, in one run on a real Ray and a real MLflow database.

The stages of the second have two workers each: the numbers, and an error, are those of one. Of
trainings, tests/faults/test_workers_lost.py has the same for both strategies, after kills.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workers_sweep import alone, worker_processes

from fope_lab.cli import main
from fope_lab.config.processor import processor
from fope_lab.store import StageFolder, Store
from fope_lab.store.checkout import Checkout
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage

pytestmark = pytest.mark.cluster

SWEEP = """
name: whole
description: Every kind of stage, and one that fails.
seeds: [0, 1]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data:
      length: 32
      mix: [{corpus: python-docs, weight: 0.5}, {task: passkey, weight: 0.5}]
    train: {tokens: 10240, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 10}
  extend:
    kind: extend
    from: pretrain
    embedding: {type: yarn, factor: 2}
    data: {files: texts/*.txt, length: 64, documents: within}
    train: {tokens: 2560, batch_tokens: 512, learning_rate: 1e-3}
  finetune:
    kind: finetune
    from: extend
    data: {corpus: python-docstrings, length: 128, pack: true}
    train: {tokens: 2560, batch_tokens: 512, learning_rate: 1e-3}
  perplexity: {kind: perplexity, from: extend, corpus: python-docs, lengths: [16, 32, 64],
               tokens: 2048}
  passkey: {kind: passkey, from: pretrain, form: symbolic, lengths: [32, 64], trials: 20}
  too-long: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 8_000_000]}
"""
WORKERS = """
name: workers
stages:
  alone: &training
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: kerple
    data:
      length: 32
      mix: [{corpus: {files: texts/*.txt}, weight: 0.5}, {task: passkey, weight: 0.5}]
    train: {tokens: 2560, batch_tokens: 512, micro_batch_tokens: 128, learning_rate: 1e-2}
  shared: {kind: perplexity, from: alone, corpus: {files: texts/*.txt}, lengths: [16, 32],
           tokens: 2048, batch_tokens: 256, resources: {workers: 2}}
  diverges:
    <<: *training
    resources: {workers: 2, strategy: fsdp}
    train: {tokens: 2560, batch_tokens: 512, micro_batch_tokens: 128, learning_rate: 1e30,
            gradient_clip: 1e30}
"""
LENGTHS = {"perplexity": [16, 32, 64], "passkey": [32, 64]}


@dataclass
class Finished:
    """What a run left."""

    sweep: Path
    workers: Path
    store: Store
    code: int
    output: str

    @property
    def in_store(self) -> list[str]:
        return ["--store", str(self.store.root)]

    def of_workers(self, section: str) -> tuple[Stage, StageFolder]:
        """A stage of the second sweep, and its folder."""
        [stage] = [one for one in load_sweep(self.workers).stages if one.section == section]
        return stage, self.store.folder(stage.kind, stage.key)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    sweep, workers = folder / "whole.yaml", folder / "workers.yaml"
    sweep.write_text(SWEEP)
    workers.write_text(WORKERS)
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("\n\n".join(f"Text {i} of all." for i in range(800)))
    done = subprocess.run(
        [sys.executable, "-m", "fope_lab.cli", "run", str(sweep), str(workers), "--store", "store"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        check=False,
    )
    output = done.stdout + done.stderr
    return Finished(sweep, workers, Store(folder / "store"), done.returncode, output)


@pytest.fixture(scope="module")
def report(finished: Finished) -> dict[str, Any]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["report", str(finished.sweep), *finished.in_store, "--json"]) == 0
    return dict(json.loads(output.getvalue()))


def test_one_failed_stage_stops_nothing_else(finished: Finished) -> None:
    assert finished.code == 1, finished.output
    states = {
        stage.label: finished.store.folder(stage.kind, stage.key).is_done()
        for stage in load_sweep(finished.sweep).stages
    }
    failed = {name for name, done in states.items() if not done}
    assert failed == {"too-long[seed=0]", "too-long[seed=1]"}
    names = r"too-long\[seed=0\], too-long\[seed=1\]"
    cause = rf"failed 2 stages: .*\n  {names} \(log of the first: \S+log\.txt\)\n"
    assert re.search(cause, finished.output)
    assert finished.output.endswith("`--retry-failed` runs those again and nothing else\n")
    assert "log.txt" in finished.output
    assert "Traceback" not in finished.output


def test_rays_chatter_is_silent(finished: Finished) -> None:
    for word in ("raylet", "INFO", "WARNING", "DeprecationWarning", "(run_stage pid"):
        assert word not in finished.output


def test_the_report_has_every_length_and_both_seeds(report: dict[str, Any]) -> None:
    for stage, lengths in LENGTHS.items():
        metric = {"perplexity": "perplexity_by_length", "passkey": "passkey_accuracy_by_length"}
        cells = [c for c in report["cells"] if (c["stage"], c["metric"]) == (stage, metric[stage])]
        assert [cell["x"] for cell in cells] == lengths
        for cell in cells:
            assert [value["seed"] for value in cell["values"]] == [0, 1]
            assert cell["n"] == 2
            mean = sum(value["value"] for value in cell["values"]) / 2
            assert cell["mean"] == pytest.approx(mean)
            assert all(value["run_id"] for value in cell["values"])


def test_mlflow_has_one_flat_run_for_each_stage(finished: Finished) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.store.root}/mlflow.db")
    experiment = client.get_experiment_by_name("whole")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    by_key = {run.data.tags.get("key", "summary"): run for run in runs}
    stages = load_sweep(finished.sweep).stages
    assert len(by_key) == len(runs)
    assert by_key.keys() == {stage.key for stage in stages} | {"summary"}
    assert not any("mlflow.parentRunId" in run.data.tags for run in runs)
    for stage in stages:
        if stage.section == "perplexity":
            run = by_key[stage.key]
            history = client.get_metric_history(run.info.run_id, "perplexity_by_length")
            assert [point.step for point in history] == LENGTHS["perplexity"]
            assert run.data.tags["embedding"] == "yarn(factor=2)"
            assert run.data.tags["seed"] == str(stage.seed)


@pytest.mark.usefixtures("without_ray")
def test_run_again_only_what_failed_and_what_is_named_is_tried(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = {stage.label: stage for stage in load_sweep(finished.sweep).stages}
    folders = {name: finished.store.folder(stage.kind, stage.key) for name, stage in stages.items()}
    before = {name: folder.attempts.newest_token() for name, folder in folders.items()}
    passkey = folders["passkey[seed=0]"]
    result, rows = passkey.result(), passkey.rows()
    redo = ["--redo", "passkey[seed=0]"]
    assert main(["run", str(finished.sweep), *finished.in_store, *redo]) == 1
    tokens = {name: folder.attempts.newest_token() for name, folder in folders.items()}
    changed = {name for name, token in tokens.items() if token != before[name]}
    assert changed == {"too-long[seed=0]", "too-long[seed=1]", "passkey[seed=0]"}
    aside = passkey.paths.set_aside(before["passkey[seed=0]"] + 1)
    assert (
        f"re-running passkey[seed=0]; its previous output is in {aside}" in capsys.readouterr().out
    )
    assert json.loads((aside / "result.json").read_text()) == result == passkey.result()
    assert [row.timestamp for row in passkey.rows()] > [row.timestamp for row in rows]


def test_who_made_a_stage_is_recorded_and_reported(
    finished: Finished, report: dict[str, Any]
) -> None:
    for stage in load_sweep(finished.sweep).stages:
        folder = finished.store.folder(stage.kind, stage.key)
        for made_by in folder.makers():
            assert made_by["versions"]["torch"]
            assert made_by["device"]
            files = finished.store.source(made_by["source"])
            assert files is not None
            assert f"{stage.spec.entry_point.partition(':')[0].replace('.', '/')}.py" in files
    if checkout := Checkout.current():
        done = sum(
            finished.store.folder(s.kind, s.key).is_done()
            for s in load_sweep(finished.sweep).stages
        )
        assert report["provenance"]["stages made at commit"] == f"{checkout} ({done})"
    assert "changed since" not in report["provenance"]


def test_what_local_files_held_is_recorded(finished: Finished) -> None:
    records = finished.store.corpora()
    assert {record.sweep for record in records} == {"whole", "workers"}
    text = (finished.sweep.parent / "texts" / "one.txt").read_bytes()
    for record in records:
        assert record.corpus["files"] == "texts/*.txt"
        assert record.files == {"texts/one.txt": hashlib.sha256(text).hexdigest()}


def test_two_workers_evaluate_as_one_does(finished: Finished, tmp_path: Path) -> None:
    stage, folder = finished.of_workers("shared")
    assert folder.is_done(), folder.state()
    [processes] = worker_processes(folder)
    assert len(set(processes)) == 2
    shutil.copytree(finished.store.root / "pretrain", tmp_path / "alone" / "pretrain")
    stages = load_sweep(finished.workers).stages
    reference = alone(stage, stages, finished.store, tmp_path / "alone")
    assert folder.result() == reference.result()
    assert [(r.step, r.values) for r in folder.rows()] == [
        (r.step, r.values) for r in reference.rows()
    ]


def test_what_the_workers_ran_on_is_recorded(finished: Finished) -> None:
    [one] = [one for one in finished.store.execution_records() if one["planned_workers"] == 2]
    assert (one["device"], one["processor"]) == ("cpu", processor())
    assert (one["workers"], one["threads"], one["work"]["threads"]) == (2, 1, 1)


def test_an_error_of_the_work_is_the_stages_failure_and_not_retried(finished: Finished) -> None:
    _, folder = finished.of_workers("diverges")
    failure = folder.attempts.newest().end
    assert failure is not None
    assert failure["type"] == "NonFiniteError"
    assert "at step" in failure["error"]
    assert "On worker 0:" in failure["traceback"], "the worker's traceback is lost"
    assert "step.py" in failure["traceback"] or "loop.py" in failure["traceback"]
    assert folder.attempts.newest_token() == 1


def test_a_finished_sweep_is_answered_without_ray(finished: Finished) -> None:
    """The same stages without the one that fails."""
    sweep = finished.sweep.with_name("finished.yaml")
    sweep.write_text("\n".join(line for line in SWEEP.splitlines() if "too-long" not in line))
    program = (
        "import sys\nfrom fope_lab.cli import main\n"
        f"code = main(['run', {str(sweep)!r}, '--store', {str(finished.store.root)!r}])\n"
        "sys.exit(code or ('ray' in sys.modules and 'ray was imported') or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "cached" in done.stdout
