"""CONTRIBUTING's worked example of an analysis: a sweep, and its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from worked_examples import checkout_with, files_of, python, write_schema

FILES = files_of("Adding an analysis")
ANALYSIS, TEST = "fope_lab/analysis/cycles.py", "tests/analysis/test_cycles.py"

SWEEP = """
name: added
stages:
  cycles: {kind: analysis, analysis: {type: cycles, head_dim: 16, length: 64}}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


def test_the_example_is_a_file_and_its_test() -> None:
    assert set(FILES) == {ANALYSIS, TEST}


def test_it_passes_its_test_and_the_linters(checkout: Path) -> None:
    python("pytest", TEST, checkout=checkout, folder=checkout)
    for command in (["check"], ["format", "--check"]):
        python("ruff", *command, ANALYSIS, TEST, checkout=checkout, folder=checkout)


def test_it_passes_the_tests_of_the_schema_after_make_schema(checkout: Path) -> None:
    write_schema(checkout)
    schema = "tests/sweep/test_sweep_schema.py"
    python("pytest", schema, "-k", "current or says", checkout=checkout, folder=checkout)


@pytest.mark.cluster
def test_it_runs_through_a_sweep_and_its_report(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "added.yaml").write_text(SWEEP)

    def fope_lab(command: str, *arguments: str) -> str:
        at = ("fope_lab.cli", command, "added.yaml", "--store", "store", *arguments)
        return python(*at, checkout=checkout, folder=tmp_path)

    fope_lab("run")
    report = json.loads(fope_lab("report", "--json"))
    assert report["cells"] == []
    [shown] = report["analyses"]
    assert shown["numbers"] == {"incomplete_rope": 5 / 8, "incomplete_extended": 6 / 8}
    assert "Peng et al." in fope_lab("report", "--markdown")
    page = (tmp_path / "store/reports/added/report.html").read_text()
    assert "Cycles in the trained length" in page
    assert ">incomplete rope</th><td>0.625</td>" in page
