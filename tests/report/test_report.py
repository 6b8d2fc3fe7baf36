"""A report as a whole: its JSON, what it prints and leaves in MLflow, also while drivers work."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from report_samples import (
    BASE,
    finish,
    links_of,
    make_report,
    printed,
    report_of,
    result,
    typical_numbers,
    write_plan,
)
from rich.console import Console

from fope_lab.cli import main
from fope_lab.orchestration.run_sweeps import run_sweeps
from fope_lab.report.render.json import report_json
from fope_lab.report.results.summary import Summary, cost_of
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage
from fope_lab.tracking.uploads import Uploads

CELL = {"stage", "metric", "x", "axes", "n", "mean", "ci95", "values", "paper"}
VALUE = {"seed", "value", "stderr", "ci95", "key", "run_id"}


def no_constants(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_json_keeps_the_contract_and_holds_no_nan(tmp_path: Path, store: Store) -> None:
    odd = {1: math.nan, 2: math.inf}

    def numbers(stage: Stage, length: int | None) -> float:
        if stage.kind == "perplexity" and length == 256:
            return odd.get(stage.seed or 0, -math.inf)
        return typical_numbers(stage, length)

    plan = write_plan(tmp_path)
    finish(plan, store, numbers, fail={"passkey[embedding=rope,seed=1]": "x"})
    report = make_report(plan, store, links_of(plan))
    text = json.dumps(report_json(report), allow_nan=False)
    given = json.loads(text, parse_constant=no_constants)
    assert {"cells", "claims", "stages"} <= given.keys()
    assert given == report_json(report)
    assert given["counts"] == {"total": 38, "done": 37, "failed": 1}
    [failed] = [stage for stage in given["stages"] if stage["state"] == "failed"]
    assert (failed["name"], failed["reason"]) == ("passkey[embedding=rope,seed=1]", "x")
    for cell in given["cells"]:
        assert cell.keys() == CELL
        assert all(value.keys() == VALUE for value in cell["values"])
        assert cell["n"] == len(cell["values"])
        assert all(value["run_id"] == f"run-{value['key']}" for value in cell["values"])
        if cell["x"] == 256:
            assert (cell["n"], cell["mean"], cell["ci95"]) == (3, None, None)
            assert [v["value"] for v in cell["values"]] == ["-Infinity", "NaN", "Infinity"]
    assert {stage["key"] for stage in given["stages"]} == {stage.key for stage in plan.sweep.stages}


def test_axes_that_are_objects_are_given_whole(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": [{"type": "rope", "base": 129}, "nope"]}
    report = report_of(tmp_path, store, {"grid": grid, "seeds": [0]})
    cells = report_json(report)["cells"]
    axes = [cell["axes"]["pretrain.embedding"] for cell in cells]
    assert {"type": "rope", "base": 129} in axes
    assert "nope" in axes


def test_printing_gives_tables_findings_and_gaps(tmp_path: Path, store: Store) -> None:
    fail = {"perplexity[embedding=nope,seed=0]": "[red]broken[/red]"}
    text = printed(report_of(tmp_path, store, fail=fail))
    assert "37 of 38 stages are done; 1 failed." in text
    assert "perplexity[embedding=nope,seed=0]: failed: [red]broken[/red]" in text
    assert "at 64, the training length, rope is best (" in text
    assert "at 256, 4 × the training length, alibi is best (" in text
    for title in ("Perplexity", "Passkey accuracy", "Loss (pretrain)"):
        assert title in text.splitlines()


def test_a_long_list_of_gaps_is_cut_with_a_count(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    text = printed(make_report(plan, store))
    assert "and 18 more; the report lists them all" in text


def test_one_seed_is_said_to_decide_nothing(tmp_path: Path, store: Store) -> None:
    report = report_of(tmp_path, store, {"seeds": [7]})
    assert "One seed (7): no intervals, and differences may be chance." in printed(report)
    assert all(cell.estimate.ci95 is None for cell in report.cells)
    assert report.summary.headline == "All 14 stages are done."


def test_one_stage_is_not_called_several() -> None:
    def headline(total: int, **counts: int) -> str:
        states = {Status(name): n for name, n in counts.items()}
        return Summary(total, states, (), cost_of([]), None, (), ()).headline

    assert headline(1, done=1) == "The only stage is done."
    assert headline(1, failed=1) == "0 of 1 stage is done; 1 failed."
    assert headline(3, done=2, failed=1) == "2 of 3 stages are done; 1 failed."


def test_failures_come_first_among_the_gaps(tmp_path: Path, store: Store) -> None:
    skip, fail = {"pretrain[embedding=nope,seed=0]"}, {"pretrain[embedding=fope,seed=2]": "late"}
    missing = report_of(tmp_path, store, skip=skip, fail=fail).summary.missing
    assert missing[0] == "pretrain[embedding=fope,seed=2]: failed: late"
    assert len(missing) == 6


def test_importing_the_package_is_cheap() -> None:
    heavy = {"matplotlib", "scipy", "jinja2", "torch", "ray", "mlflow"}
    code = f"import fope_lab.report, sys; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


CHANGES = {"seeds": [0], "grid": {"pretrain.embedding": ["rope", "nope"]}}
PASSKEY, PERPLEXITY = "passkey[embedding=rope,seed=0]", "perplexity[embedding=rope,seed=0]"
TRAINING = "pretrain[embedding=nope,seed=0]"


def test_what_is_finished_is_shown_and_the_rest_is_waited_for(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(tmp_path, CHANGES)
    finish(plan, store, skip=[PASSKEY, TRAINING])
    stages: dict[str, Stage] = {stage.label: stage for stage in plan.sweep.stages}
    trained, asked = stages[TRAINING], stages[PASSKEY]
    training = store.folder(trained.kind, trained.key)
    attempt = training.begin("driver", {"config": trained.config})
    for step in (10, 20):
        attempt.writer.log(step, {"loss": 3.0})
    segment = next(training.paths.metrics.glob("*.jsonl"))
    with segment.open("a") as file:
        file.write('{"step": 30, "time": 1, "val')  # as a write that is not finished
    training.paths.progress.write_text('{"token": 1, "st')
    evaluation = store.folder(asked.kind, asked.key)
    other = evaluation.begin("driver", {"config": asked.config})
    (evaluation.path / ".result.json.0a.tmp").write_text('{"format": 2, "metr')
    (evaluation.path / "result.json").write_text('{"format": 2, "metr')
    try:
        file, place = str(plan.sweep.path), str(store.root)
        assert main(["report", file, "--store", place, "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        states = {stage["name"]: stage["state"] for stage in content["stages"]}
        assert (states[TRAINING], states[PASSKEY], states[PERPLEXITY]) == (
            "running",
            "running",
            "done",
        )
        assert {c["stage"] for c in content["cells"] if c["n"]} >= {"pretrain", "perplexity"}
        assert main(["report", file, "--store", place]) == 0
        first = capsys.readouterr().out
        assert "running" in first
        assert not first.rstrip().endswith("(unchanged)")
        assert main(["report", file, "--store", place]) == 0
        assert capsys.readouterr().out.rstrip().endswith("(unchanged)")
        other.writer.log(32, {"passkey_accuracy_by_length": 0.5})
        other.finish(result(form="symbolic"))
        assert main(["report", file, "--store", place]) == 0
        assert not capsys.readouterr().out.rstrip().endswith("(unchanged)")
    finally:
        attempt.release()


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A sweep file, all of which is done in `store` beside it."""
    perplexity = {**BASE["stages"]["perplexity"], "lengths": [64, 512]}
    sweep = {
        "seeds": [0],
        "stages": {"pretrain": BASE["stages"]["pretrain"], "perplexity": perplexity},
        "grid": {"pretrain.embedding": ["rope", "nope"]},
        "paper": "fope/table2",
        "report": {"claims": ["perplexity@512: nope < rope"]},
    }
    finish(write_plan(tmp_path, sweep), Store(tmp_path / "store"))
    return tmp_path / "sample.yaml"


def test_the_summary_carries_the_report_and_its_numbers(finished: Path) -> None:
    root = finished.parent / "store"
    console = Console(file=io.StringIO(), width=200)
    sweeps = [load_sweep(finished)]
    with Uploads() as uploads:
        failures = run_sweeps(
            sweeps, uploads, store=str(root), tracking_uri=None, address="local", console=console
        )
    assert not failures
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    experiment = client.get_experiment_by_name("sample")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    [summary] = [run for run in runs if run.data.tags["kind"] == "summary"]
    metrics = summary.data.metrics
    files = root / "mlartifacts" / "sample" / summary.info.run_id / "artifacts"
    written = {"report.html", "report.json", "report.md", "results.csv"}
    assert {file.name for file in files.iterdir()} == written | {"figures"}
    pictures = {file.name: file.read_text() for file in (files / "figures").iterdir()}
    assert "perplexity-by-context-length.svg" in pictures
    assert all("<svg" in text for text in pictures.values())
    table = (files / "results.csv").read_text().splitlines()
    assert table[0].startswith("stage,kind,metric,x,value,")
    assert any("perplexity_by_length,512," in line for line in table)
    report = json.loads((files / "report.json").read_text())
    differences = {
        f"difference/{one['row']}/{one['column']}": one["difference"]
        for one in report["beside"]["comparisons"]
    }
    rows, columns = ("RoPE", "NoPE"), (512, 4096)  # at the trained length, and at 8 times that
    assert differences.keys() == {f"difference/{a}/{b}" for a in rows for b in columns}
    assert {name: metrics[name] for name in differences} == pytest.approx(differences)
    words = [claim["verdict"].replace(" ", "_") for claim in report["claims"]]
    assert [metrics[f"claims_{word}"] for word in words] == [1.0]
    assert metrics["stages_done"] == 6
    assert (files / "report.md").read_text() == (
        root / "reports" / "sample" / "report.md"
    ).read_text()


def test_markdown_goes_to_standard_output(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["report", str(finished), "--store", str(finished.parent / "store")]
    assert main([*arguments, "--markdown"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# sample\n")
    assert "## Comparison with the paper" in text
    assert not (finished.parent / "store" / "reports").exists()
    with pytest.raises(SystemExit):
        main([*arguments, "--markdown", "--json"])
