"""What one run of two small sweeps on a real Ray leaves; stages of two workers are in
tests/faults/test_workers_lost.py."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from typing import Any

import pytest
from real_run import HEADS, WHOLE, RealRun, run_in
from safetensors.numpy import load_file

from fope_lab.cli import main
from fope_lab.config import plugins
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.orchestration import controller
from fope_lab.stages.labels import label
from fope_lab.store.checkout import Checkout
from fope_lab.sweep import load_sweep

pytestmark = pytest.mark.cluster

LENGTHS = {"perplexity": [16, 32, 64], "passkey": [32, 64]}
GAUSSIAN = "gaussian(width=8)"
METRIC = "induction_recall_by_length"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    return run_in(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def report(finished: RealRun) -> dict[str, Any]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["report", str(finished.whole), *finished.in_store, "--json"]) == 0
    return dict(json.loads(output.getvalue()))


def test_one_failed_stage_stops_nothing_else(finished: RealRun) -> None:
    assert finished.code == 1, finished.output
    states = {
        stage.label: finished.store.folder(stage.kind, stage.key).is_done()
        for stage in load_sweep(finished.whole).stages
    }
    failed = {name for name, done in states.items() if not done}
    assert failed == {"too-long[seed=0]", "too-long[seed=1]"}
    names = r"too-long\[seed=0\], too-long\[seed=1\]"
    cause = rf"failed 2 stages: .*\n  {names} \(log of the first: \S+log\.txt\)\n"
    assert re.search(cause, finished.output)
    assert finished.output.endswith("`--retry-failed` runs those again and nothing else\n")
    assert "log.txt" in finished.output
    assert "Traceback" not in finished.output


def test_rays_chatter_is_silent(finished: RealRun) -> None:
    for word in ("raylet", "INFO", "WARNING", "DeprecationWarning", "(run_slot pid"):
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


def test_mlflow_has_one_flat_run_for_each_stage(finished: RealRun) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.store.root}/mlflow.db")
    experiment = client.get_experiment_by_name("whole")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    by_key = {run.data.tags.get("key", "summary"): run for run in runs}
    stages = load_sweep(finished.whole).stages
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
    finished: RealRun, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = {stage.label: stage for stage in load_sweep(finished.whole).stages}
    folders = {name: finished.store.folder(stage.kind, stage.key) for name, stage in stages.items()}
    before = {name: folder.attempts.newest_token() for name, folder in folders.items()}
    passkey = folders["passkey[seed=0]"]
    result, rows = passkey.result(), passkey.rows()
    redo = ["--redo", "passkey[seed=0]"]
    assert main(["run", str(finished.whole), *finished.in_store, *redo]) == 1
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
    finished: RealRun, report: dict[str, Any]
) -> None:
    for stage in load_sweep(finished.whole).stages:
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
            for s in load_sweep(finished.whole).stages
        )
        assert report["provenance"]["stages made at commit"] == f"{checkout} ({done})"
    assert "changed since" not in report["provenance"]


def test_what_local_files_held_is_recorded(finished: RealRun) -> None:
    records = finished.store.corpora()
    assert {record.sweep for record in records} == {"whole"}
    text = (finished.folder / "texts" / "one.txt").read_bytes()
    for record in records:
        assert record.corpus["files"] == "texts/*.txt"
        assert record.files == {"texts/one.txt": hashlib.sha256(text).hexdigest()}


def test_a_finished_sweep_is_answered_without_ray(
    finished: RealRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stages without the one that fails."""
    sweep = finished.whole.with_name("finished.yaml")
    sweep.write_text("\n".join(line for line in WHOLE.splitlines() if "too-long" not in line))
    monkeypatch.delattr(controller, "run_stages")
    assert main(["run", str(sweep), *finished.in_store]) == 0
    assert "cached" in capsys.readouterr().out


@pytest.fixture(scope="module")
def added(finished: RealRun) -> Any:
    """The report of the second sweep."""
    return json.loads((finished.store.root / "reports/added/report.json").read_text())


@pytest.fixture(scope="module")
def planned(finished: RealRun) -> list[dict[str, Any]]:
    """The stages in the plan of the second sweep after the run."""
    return finished.planned()


def test_an_embedding_is_planned_trained_and_reported(
    finished: RealRun, added: Any, planned: list[dict[str, Any]]
) -> None:
    """In Ray's workers, which import the plug-ins."""
    losses = [cell["mean"] for cell in added["cells"] if cell["metric"] == "loss"]
    assert len(set(losses)) == 2
    forecast, counted, learned = {}, {}, {}
    for stage in planned:
        if stage["kind"] == "pretrain":
            name = label(stage["axes"]["pretrain.embedding"])
            made = finished.store.root / "pretrain" / stage["key"]
            forecast[name] = stage["params"]
            recorded = json.loads((made / "result.json").read_text())["recorded"]
            counted[name] = recorded["parameters"]["total"]
            weights = load_file(next((made / "checkpoint").rglob("model.safetensors")))
            learned[name] = [w for key, w in weights.items() if key.endswith(".log_w")]
    assert forecast == counted
    [rotary] = counted.keys() - {GAUSSIAN}
    assert counted[GAUSSIAN] - counted[rotary] == HEADS
    [log_w] = learned[GAUSSIAN]
    assert log_w.shape == (HEADS,)
    assert len(set(log_w.tolist())) == HEADS  # they have learned


def test_an_evaluation_is_reported_and_claimed(finished: RealRun, added: Any) -> None:
    cells = [cell for cell in added["cells"] if cell["metric"] == METRIC]
    assert sorted((cell["x"], cell["n"]) for cell in cells) == [(32, 1)] * 2 + [(64, 1)] * 2
    assert all(value["stderr"] is not None for cell in cells for value in cell["values"])
    assert len(added["claims"]) == 1
    page = (finished.store.root / "reports/added/report.md").read_text()
    assert "Induction recall" in page
    assert "Peng et al." in page


def test_an_analysis_is_in_the_report(finished: RealRun, added: Any) -> None:
    [shown] = added["analyses"]
    assert shown["numbers"] == {"incomplete_rope": 5 / 8, "incomplete_extended": 6 / 8}
    page = (finished.store.root / "reports/added/report.html").read_text()
    assert ">pairs of RoPE that complete no cycle, share</th><td>0.625</td>" in page


def test_a_checkpoint_names_its_plugin_which_an_export_needs(
    finished: RealRun,
    planned: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who loads what was exported needs none: tests/model/export/test_huggingface_export.py."""
    [key] = (
        stage["key"]
        for stage in planned
        if stage["kind"] == "pretrain" and label(stage["axes"]["pretrain.embedding"]) == GAUSSIAN
    )
    monkeypatch.chdir(finished.folder)
    monkeypatch.setattr(plugins, "_loaded", dict(plugins._loaded))
    monkeypatch.setattr(EMBEDDING_TYPES, "_types", dict(EMBEDDING_TYPES.all()))
    export = ["export", f"store/pretrain/{key}", "out"]
    assert main(export) == 2
    assert "is of the plug-in gaussian.py, which is not here" in capsys.readouterr().err
    assert main([*export, "--plugins", "./gaussian.py"]) == 0


def test_a_changed_plugin_marks_what_it_made(
    finished: RealRun, planned: list[dict[str, Any]]
) -> None:
    assert not any("induction.py" in stage["reason"] for stage in planned)
    file = finished.folder / "induction.py"
    before = file.read_text()
    file.write_text(before.replace("error_of_mean(", "0 * error_of_mean("))
    assert file.read_text() != before
    changed = {stage["kind"] for stage in finished.planned() if "induction.py" in stage["reason"]}
    assert changed == {"induction"}
