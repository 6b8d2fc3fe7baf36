"""A small sweep through the whole product, on a real Ray and a real MLflow database."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fope_lab.provenance.checkout import Checkout
from fope_lab.store import Store
from fope_lab.sweep import load_sweep

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
LENGTHS = {"perplexity": [16, 32, 64], "passkey": [32, 64]}


@dataclass
class Finished:
    """What a run left."""

    sweep: Path
    store: Store
    code: int
    output: str


def fope_lab(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fope_lab.cli", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    sweep = folder / "whole.yaml"
    sweep.write_text(SWEEP)
    (folder / "texts").mkdir()
    (folder / "texts" / "one.txt").write_text("\n\n".join(["A paragraph of a text."] * 400))
    done = fope_lab("run", sweep, "--store", folder / "store", folder=folder)
    return Finished(sweep, Store(folder / "store"), done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def report(finished: Finished) -> dict[str, Any]:
    done = fope_lab(
        "report", finished.sweep, "--store", finished.store.root, "--json",
        folder=finished.sweep.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


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


def test_run_again_only_what_failed_and_what_is_named_is_tried(finished: Finished) -> None:
    stages = {stage.label: stage for stage in load_sweep(finished.sweep).stages}
    folders = {name: finished.store.folder(stage.kind, stage.key) for name, stage in stages.items()}
    before = {name: folder.attempts.newest_token() for name, folder in folders.items()}
    passkey = folders["passkey[seed=0]"]
    result, rows = passkey.result(), passkey.rows()
    again = fope_lab(
        "run", finished.sweep, "--store", finished.store.root, "--redo", "passkey[seed=0]",
        folder=finished.sweep.parent,
    )  # fmt: skip
    assert again.returncode == 1
    tokens = {name: folder.attempts.newest_token() for name, folder in folders.items()}
    changed = {name for name, token in tokens.items() if token != before[name]}
    assert changed == {"too-long[seed=0]", "too-long[seed=1]", "passkey[seed=0]"}
    aside = passkey.paths.set_aside(before["passkey[seed=0]"] + 1)
    assert f"re-running passkey[seed=0]; its previous output is in {aside}" in again.stdout
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
    [record] = finished.store.corpora()
    assert (record.sweep, record.corpus["files"]) == ("whole", "texts/*.txt")
    text = (finished.sweep.parent / "texts" / "one.txt").read_bytes()
    assert record.files == {"texts/one.txt": hashlib.sha256(text).hexdigest()}


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
