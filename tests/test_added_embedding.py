"""CONTRIBUTING's worked example of an embedding, from its file to a report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from worked_examples import checkout_with, files_of, python

from fope_lab.stages.labels import label

FILES = files_of("Adding an embedding")
EMBEDDING, TEST = "fope_lab/embeddings/t5.py", "tests/embeddings/test_t5.py"

BUCKETS, HEADS = 8, 2
SWEEP = f"""
name: added
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 1, num_heads: {HEADS}, head_dim: 16, intermediate_size: 64}}
    embedding: nope
    data: {{corpus: python-docs, length: 32}}
    train: {{tokens: 2560, batch_tokens: 512, learning_rate: 1e-2}}
  perplexity: {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 64],
               tokens: 2048}}
grid:
  pretrain.embedding: [nope, {{type: t5, num_buckets: {BUCKETS}, max_distance: 20}}]
"""
LABEL = f"t5(num_buckets={BUCKETS},max_distance=20)"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


def _recorded(folder: Path) -> dict[str, Any]:
    """What a stage's result.json says beside its metrics."""
    recorded: dict[str, Any] = json.loads((folder / "result.json").read_text())["recorded"]
    return recorded


def test_the_example_is_a_file_and_its_test() -> None:
    assert set(FILES) == {EMBEDDING, TEST}


def test_it_is_listed_with_its_options(checkout: Path, tmp_path: Path) -> None:
    def embeddings(*arguments: str) -> Any:
        command = ("fope_lab.cli", "embeddings", *arguments, "--json")
        return json.loads(python(*command, checkout=checkout, folder=tmp_path))

    by_name = {one["name"]: one for one in embeddings()["embeddings"]}
    assert by_name["t5"]["source"] == "Raffel et al., arXiv 1910.10683, §2.1"
    assert by_name["t5"]["resolved"]["learned_parameters"] == 32 * 8
    assert by_name["t5"]["resolved"]["per_layer"] is False
    options = {one["option"]: one for one in embeddings("t5")["options"]}
    assert set(options) == {"num_buckets", "max_distance", "shared_layers"}
    assert options["num_buckets"]["default"] == 32


def test_it_passes_its_test_and_the_conformance_tests(checkout: Path) -> None:
    """And the linters."""
    printed = python("pytest", "tests/embeddings", "-k", "t5", checkout=checkout, folder=checkout)
    [passed] = re.findall(r"^(\d+) passed", printed, flags=re.MULTILINE)
    conformance = (checkout / "tests/embeddings/test_conformance.py").read_text()
    assert int(passed) > conformance.count("@every_embedding\n") > 10
    for command in (["check"], ["format", "--check"]):
        python("ruff", *command, EMBEDDING, TEST, checkout=checkout, folder=checkout)


@pytest.mark.cluster
def test_it_runs_through_a_sweep(checkout: Path, tmp_path: Path) -> None:
    """Planned, trained in Ray's workers, evaluated and reported, beside nope."""
    (tmp_path / "added.yaml").write_text(SWEEP)

    def fope_lab(*arguments: str) -> str:
        command = ("fope_lab.cli", *arguments, "--store", "store")
        return python(*command, checkout=checkout, folder=tmp_path)

    plan = json.loads(fope_lab("plan", "added.yaml", "--json"))
    assert LABEL in fope_lab("run", "added.yaml")
    report = json.loads(fope_lab("report", "added.yaml", "--json"))
    perplexity = {
        (label(cell["axes"]["pretrain.embedding"]), cell["x"]): cell["mean"]
        for cell in report["cells"]
        if cell["metric"] == "perplexity_by_length"
    }
    assert perplexity.keys() == {(name, x) for name in ("nope", LABEL) for x in (32, 64)}
    assert perplexity[LABEL, 32] != perplexity["nope", 32]

    planned, counted, learned = {}, {}, {}
    for stage in plan["stages"]:
        if stage["kind"] == "pretrain":
            name = label(stage["axes"]["pretrain.embedding"])
            folder = tmp_path / "store" / "pretrain" / stage["key"]
            planned[name] = stage["params"]
            counted[name] = _recorded(folder)["parameters"]["total"]
            weights = load_file(next((folder / "checkpoint").rglob("model.safetensors")))
            learned[name] = [w for key, w in weights.items() if key.endswith(".by_bucket")]
    assert counted[LABEL] - counted["nope"] == BUCKETS * HEADS
    assert planned == counted
    [by_bucket] = learned[LABEL]
    assert by_bucket.shape == (BUCKETS, HEADS)
    assert by_bucket.any()
