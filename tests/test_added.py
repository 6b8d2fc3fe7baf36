"""CONTRIBUTING's worked examples: as files of the lab with tests, and as plug-ins of a sweep."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from worked_examples import ROOT, checkout_with, execute, files_of, python

from fope_lab.stages.labels import label

EXAMPLES = {
    "Adding an embedding": ("fope_lab/embeddings/t5.py", "tests/embeddings/test_t5.py"),
    "Adding a frequency transform": (
        "fope_lab/embeddings/proportional.py",
        "tests/embeddings/test_proportional.py",
    ),
    "Adding an evaluation": (
        "fope_lab/evaluation/induction.py",
        "tests/evaluation/test_induction.py",
    ),
    "Adding an analysis": ("fope_lab/analysis/cycles.py", "tests/analysis/test_cycles.py"),
}
FILES = {path: text for title in EXAMPLES for path, text in files_of(title).items()}
OTHERS = [EXAMPLES[f"Adding an {one}"][1] for one in ("evaluation", "analysis")]
BUCKETS, HEADS = 8, 2
T5 = f"t5(num_buckets={BUCKETS},max_distance=20)"
METRIC = "induction_recall_by_length"
SWEEP = f"""
name: added
seeds: [0, 1]
plugins: [./t5.py, ./proportional.py, ./induction.py, ./cycles.py]
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 1, num_heads: {HEADS}, head_dim: 16, intermediate_size: 64}}
    embedding: nope
    data: {{corpus: python-docs, length: 32}}
    train: {{tokens: 2560, batch_tokens: 512, learning_rate: 1e-2}}
  perplexity: {{kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 64],
               tokens: 2048}}
  induction: {{kind: induction, from: pretrain, lengths: [32, 64], count: 5}}
  cycles: {{kind: analysis, analysis: {{type: cycles, head_dim: 16, length: 64}}}}
grid:
  pretrain.embedding:
    - nope
    - {{type: t5, num_buckets: {BUCKETS}, max_distance: 20}}
    - {{type: rotary, transforms: [{{type: proportional, p: 0.5, factor: 4}}]}}
report:
  claims: ["induction@64 where pretrain.embedding=nope: <= 1"]
"""
SPEC = {
    "type": "rotary",
    "base": 500.0,
    "transforms": [{"type": "proportional", "p": 0.5, "factor": 4.0}],
}
THERE_AND_BACK = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from fope_lab.model import Decoder, ModelConfig, load_model, read_config, save_model
from fope_lab.model.export.folder import export

spec = json.loads(sys.argv[1])
config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, vocab_size=272)
model = Decoder(config, spec, train_length=64, seed=1).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
save_model("ours", model, tokenizer="byte", context_length=128)
export("ours", "llama", to="llama")
theirs = AutoModelForCausalLM.from_pretrained("llama")
assert type(theirs) is LlamaForCausalLM
ids = torch.randint(0, 256, (2, 200), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    ours = model(ids).logits
    assert ours.std() > 0.5
    torch.testing.assert_close(theirs(ids).logits, ours, rtol=0, atol=1e-5)
    torch.testing.assert_close(load_model("llama")(ids).logits, ours, rtol=0, atol=1e-6)
print(json.dumps(read_config("llama").embedding.canonical()))
"""
SEPARATOR = "\f"
DESCRIBE = f"""
from fope_lab.cli import main

plugins = ["--json", "--plugins", "./t5.py", "./proportional.py"]
assert main(["embeddings", *plugins]) == 0
for name in ("t5", "proportional"):
    print({SEPARATOR!r})
    assert main(["embeddings", name, *plugins]) == 0
"""
LOAD_EXPORT = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(".", trust_remote_code=True)
assert model(torch.arange(40)[None]).logits.shape[:2] == (1, 40)
assert not {"fope_lab", "pydantic"} & {name.partition(".")[0] for name in sys.modules}
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab with all examples in it."""
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


def _fope_lab(folder: Path, *arguments: str) -> str:
    return python("fope_lab.cli", *arguments, "--store", "store", checkout=ROOT, folder=folder)


def _json(folder: Path, *arguments: str) -> Any:
    return json.loads(_fope_lab(folder, *arguments, "--json"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep file with the examples beside it, of which the lab knows nothing."""
    folder = tmp_path_factory.mktemp("sweep")
    for source, _ in EXAMPLES.values():
        (folder / Path(source).name).write_text(FILES[source])
    (folder / "added.yaml").write_text(SWEEP)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Any:
    """The report that a run of the sweep leaves."""
    _fope_lab(folder, "run", "added.yaml")
    return json.loads((folder / "store/reports/added/report.json").read_text())


@pytest.fixture(scope="module")
def planned(report: Any, folder: Path) -> list[dict[str, Any]]:
    """The stages in the plan after the run."""
    assert report["cells"]
    return list(_json(folder, "plan", "added.yaml")["stages"])


@pytest.fixture(scope="module")
def passed(checkout: Path) -> list[str]:
    """The tests of the examples, and those of every embedding for the two that are added."""
    chosen = "t5 or proportional or test_induction or test_cycles"
    tests = ("tests/embeddings", *OTHERS, "-k", chosen, "-rp")
    printed = python("pytest", *tests, checkout=checkout, folder=checkout)
    return re.findall(r"^PASSED (.*)", printed, flags=re.MULTILINE)


def test_they_are_described_with_their_options(folder: Path) -> None:
    command = [sys.executable, "-c", DESCRIBE]
    done = execute(*command, checkout=ROOT, folder=folder)
    assert done.returncode == 0, done.stderr
    listed, t5, proportional = map(json.loads, done.stdout.split(SEPARATOR))
    by_name = {one["name"]: one for one in listed["embeddings"]}
    assert by_name["t5"]["source"] == "Raffel et al., arXiv 1910.10683, §2.1"
    assert by_name["t5"]["resolved"]["learned_parameters"] == 32 * 8
    assert by_name["t5"]["resolved"]["per_layer"] is False
    options = {one["option"]: one for one in t5["options"]}
    assert set(options) == {"num_buckets", "max_distance", "shared_layers"}
    options = {one["option"]: one for one in proportional["options"]}
    assert options["factor"]["default"] == 1.0


@pytest.mark.parametrize("name", ["t5", "proportional"])
def test_an_embedding_passes_its_test_and_the_conformance_tests(
    name: str, checkout: Path, passed: list[str]
) -> None:
    conformance = (checkout / "tests/embeddings/test_conformance.py").read_text()
    assert sum(name in test for test in passed) > conformance.count("@every_embedding\n") > 10


def test_the_others_pass_their_tests_and_all_the_linters(checkout: Path, passed: list[str]) -> None:
    for tests in OTHERS:
        assert any(test.startswith(tests) for test in passed)
    for command in (["check"], ["format", "--check"]):
        python("ruff", *command, *FILES, checkout=checkout, folder=checkout)


def test_the_committed_schema_lacks_them_until_make_schema(checkout: Path, tmp_path: Path) -> None:
    """The failing test names the target, whose recipe is run here with this Python."""
    current = "tests/sweep/test_sweep_schema.py::test_the_committed_schema_is_current"
    failed = execute(sys.executable, "-m", "pytest", current, checkout=checkout, folder=checkout)
    assert failed.returncode == 1
    assert "`make schema` rewrites it" in failed.stdout
    assert len(failed.stdout) < 2000
    script = tmp_path / "bin" / "fope-lab"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fope_lab.cli "$@"\n')
    script.chmod(0o755)
    (tmp_path / ".installed").touch()
    made = execute("make", "schema", f"VENV={tmp_path}", checkout=checkout, folder=checkout)
    assert made.returncode == 0, made.stdout + made.stderr
    kinds = "current or says or (unless and induction)"
    tests = ("tests/sweep/test_keys.py", "tests/sweep/test_sweep_schema.py")
    python("pytest", *tests, "-k", kinds, checkout=checkout, folder=checkout)


def test_a_transform_goes_to_hugging_face_and_back(checkout: Path, tmp_path: Path) -> None:
    """Nothing in model/ knows it: LlamaForCausalLM has the same logits, and so has what is read."""
    command = (sys.executable, "-c", THERE_AND_BACK, json.dumps(SPEC))
    done = execute(*command, checkout=checkout, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == SPEC
    written = json.loads((tmp_path / "llama" / "config.json").read_text())["rope_parameters"]
    assert written == {
        "rope_type": "proportional",
        "rope_theta": 500.0,
        "partial_rotary_factor": 0.5,
        "factor": 4.0,
    }


@pytest.mark.cluster
def test_an_embedding_is_planned_trained_and_reported(
    report: Any, planned: list[dict[str, Any]], folder: Path
) -> None:
    """In Ray's workers, which import the plug-ins, beside nope."""
    perplexity = {
        (label(cell["axes"]["pretrain.embedding"]), cell["x"]): cell["mean"]
        for cell in report["cells"]
        if cell["metric"] == "perplexity_by_length"
    }
    assert len(perplexity) == 6
    assert perplexity[T5, 32] != perplexity["nope", 32]
    forecast, counted, learned = {}, {}, {}
    for stage in planned:
        if stage["kind"] == "pretrain":
            name = label(stage["axes"]["pretrain.embedding"])
            made = folder / "store/pretrain" / stage["key"]
            forecast[name] = stage["params"]
            recorded = json.loads((made / "result.json").read_text())["recorded"]
            counted[name] = recorded["parameters"]["total"]
            weights = load_file(next((made / "checkpoint").rglob("model.safetensors")))
            learned[name] = [w for key, w in weights.items() if key.endswith(".by_bucket")]
    assert counted[T5] - counted["nope"] == BUCKETS * HEADS
    assert forecast == counted
    [by_bucket] = learned[T5]
    assert by_bucket.shape == (BUCKETS, HEADS)
    assert by_bucket.any()


@pytest.mark.cluster
def test_an_evaluation_is_reported_and_claimed(report: Any, folder: Path) -> None:
    cells = [cell for cell in report["cells"] if cell["metric"] == METRIC]
    assert sorted((cell["x"], cell["n"]) for cell in cells) == [(32, 2)] * 3 + [(64, 2)] * 3
    assert all(value["stderr"] is not None for cell in cells for value in cell["values"])
    assert len(report["claims"]) == 1
    page = (folder / "store/reports/added/report.md").read_text()
    assert "Induction recall" in page
    assert "Peng et al." in page


@pytest.mark.cluster
def test_an_analysis_is_in_the_report(report: Any, folder: Path) -> None:
    [shown] = report["analyses"]
    assert shown["numbers"] == {"incomplete_rope": 5 / 8, "incomplete_extended": 6 / 8}
    page = (folder / "store/reports/added/report.html").read_text()
    assert ">pairs of RoPE that complete no cycle, share</th><td>0.625</td>" in page


@pytest.mark.cluster
def test_a_checkpoint_names_its_plugin_and_its_export_needs_none(
    planned: list[dict[str, Any]], folder: Path
) -> None:
    [key] = (
        stage["key"]
        for stage in planned
        if (stage["kind"], stage["seed"]) == ("pretrain", 0)
        and label(stage["axes"]["pretrain.embedding"]) == T5
    )
    command = [sys.executable, "-m", "fope_lab.cli", "export", f"store/pretrain/{key}", "out"]
    refused = execute(*command, checkout=ROOT, folder=folder)
    assert refused.returncode == 2
    assert "is of the plug-in t5.py, which is not here" in refused.stderr
    done = execute(*command, "--plugins", "./t5.py", checkout=ROOT, folder=folder)
    assert done.returncode == 0, done.stderr
    elsewhere = folder / "out"  # where no fope_lab is found
    done = execute(sys.executable, "-c", LOAD_EXPORT, checkout=elsewhere, folder=elsewhere)
    assert done.returncode == 0, done.stderr


@pytest.mark.cluster
def test_a_changed_plugin_marks_what_it_made(planned: list[dict[str, Any]], folder: Path) -> None:
    assert not any("induction.py" in stage["reason"] for stage in planned)
    file = folder / "induction.py"
    before = file.read_text()
    file.write_text(before.replace("error_of_mean(", "0 * error_of_mean("))
    assert file.read_text() != before
    stages = _json(folder, "plan", "added.yaml")["stages"]
    changed = {stage["kind"] for stage in stages if "induction.py" in stage["reason"]}
    assert changed == {"induction"}
    file.write_text(before)
