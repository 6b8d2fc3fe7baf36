"""CONTRIBUTING's worked example of an evaluation: a sweep, its report and its claims."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from worked_examples import checkout_with, execute, files_of, python, write_schema

FILES = files_of("Adding an evaluation")
EVALUATION, TEST = "fope_lab/evaluation/induction.py", "tests/evaluation/test_induction.py"
METRIC = "induction_recall_by_length"

SWEEP = """
name: added
seeds: [0, 1]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 1024, batch_tokens: 512, learning_rate: 1e-2}
  induction: {kind: induction, from: pretrain, lengths: [32, 64], count: 5}
grid:
  pretrain.embedding: [nope, rope]
report:
  claims: ["induction@64: rope > nope"]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


def test_the_example_is_a_file_and_its_test() -> None:
    assert set(FILES) == {EVALUATION, TEST}


def test_it_passes_its_test_and_the_linters(checkout: Path) -> None:
    python("pytest", TEST, checkout=checkout, folder=checkout)
    for command in (["check"], ["format", "--check"]):
        python("ruff", *command, EVALUATION, TEST, checkout=checkout, folder=checkout)


def test_it_passes_the_tests_of_all_kinds_after_make_schema(checkout: Path) -> None:
    write_schema(checkout)
    keys, schema = "tests/sweep/test_keys.py", "tests/sweep/test_sweep_schema.py"
    for tests, chosen in ((keys, "unless and induction"), (schema, "current or says")):
        python("pytest", tests, "-k", chosen, checkout=checkout, folder=checkout)


def test_its_options_are_checked(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(SWEEP.replace("count: 5", "cuont: 5"))
    command = (sys.executable, "-m", "fope_lab.cli", "validate", "wrong.yaml")
    done = execute(*command, checkout=checkout, folder=tmp_path)
    assert done.returncode == 2
    assert "cuont" in done.stdout + done.stderr
    assert "did you mean 'count'" in done.stdout + done.stderr


@pytest.mark.cluster
def test_it_runs_through_a_sweep_its_report_and_its_claims(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "added.yaml").write_text(SWEEP)

    def fope_lab(*arguments: str) -> str:
        command = ("fope_lab.cli", *arguments, "--store", "store")
        return python(*command, checkout=checkout, folder=tmp_path)

    def read(*arguments: str) -> Any:
        return json.loads(fope_lab(*arguments, "--json"))

    planned = [
        stage for stage in read("plan", "added.yaml")["stages"] if "induction" in stage["kind"]
    ]
    assert [stage["tokens"] for stage in planned] == [5 * (32 + 64)] * 4
    fope_lab("run", "added.yaml")
    report = read("report", "added.yaml")
    cells = [cell for cell in report["cells"] if cell["metric"] == METRIC]
    assert sorted((cell["x"], cell["n"]) for cell in cells) == [(32, 2)] * 2 + [(64, 2)] * 2
    assert all(value["stderr"] is not None for cell in cells for value in cell["values"])
    [claim] = report["claims"]
    assert claim["verdict"] == "not trained"  # two steps teach no induction
    page = fope_lab("report", "added.yaml", "--markdown")
    assert "Induction recall" in page
    assert "Higher is better." in page

    key = planned[0]["key"]
    result = json.loads((tmp_path / "store" / "induction" / key / "result.json").read_text())
    assert result["recorded"] == {}
    assert {(metric["name"], metric["x"]) for metric in result["metrics"]} == {
        (METRIC, 32),
        (METRIC, 64),
    }
