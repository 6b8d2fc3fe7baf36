"""CONTRIBUTING's worked example of a frequency transform, and its way to Hugging Face and back."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from worked_examples import checkout_with, execute, files_of, python

FILES = files_of("Adding a frequency transform")
TRANSFORM, TEST = "fope_lab/embeddings/proportional.py", "tests/embeddings/test_proportional.py"

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
print(json.dumps(read_config("llama").embedding))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_with(FILES, tmp_path_factory.mktemp("checkout"))


def test_the_example_is_a_file_and_its_test() -> None:
    assert set(FILES) == {TRANSFORM, TEST}


def test_it_is_described_with_its_options(checkout: Path, tmp_path: Path) -> None:
    command = ("fope_lab.cli", "embeddings", "proportional", "--json")
    described = json.loads(python(*command, checkout=checkout, folder=tmp_path))
    options = {option["option"]: option for option in described["options"]}
    assert {"p", "factor"} <= set(options)
    assert options["factor"]["default"] == 1.0


def test_it_passes_its_test_and_the_conformance_tests(checkout: Path) -> None:
    """And the linters."""
    command = ("pytest", "tests/embeddings", "-k", "proportional")
    printed = python(*command, checkout=checkout, folder=checkout)
    [passed] = re.findall(r"^(\d+) passed", printed, flags=re.MULTILINE)
    conformance = (checkout / "tests/embeddings/test_conformance.py").read_text()
    assert int(passed) > conformance.count("@every_embedding\n") > 10
    for arguments in (["check"], ["format", "--check"]):
        python("ruff", *arguments, TRANSFORM, TEST, checkout=checkout, folder=checkout)


def test_the_committed_schema_lacks_it_until_make_schema(checkout: Path, tmp_path: Path) -> None:
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
    python("pytest", current, checkout=checkout, folder=checkout)


def test_it_goes_to_hugging_face_and_back(checkout: Path, tmp_path: Path) -> None:
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
