"""What a finished sweep leaves in MLflow's run `summary`; and the report on standard output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from mlflow import MlflowClient
from report_samples import BASE, finish, write_plan
from rich.console import Console

from fope_lab.cli import main
from fope_lab.orchestration.run_sweeps import run_sweeps
from fope_lab.store import Store
from fope_lab.sweep import load_sweep


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
    failures = run_sweeps(
        sweeps, store=str(root), tracking_uri=None, address="local", console=console
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
