"""The sweep files that the documentation's pages show in full are valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig

from fope_lab.sweep import load_sweep

PAGES = Path(__file__).parents[2] / "docs" / "pages"
FENCED = re.compile(r"^ *```ya?ml\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
PLUGIN = re.compile(r'^```python\n("""mine\.py: .*?)^```', flags=re.DOTALL | re.MULTILINE)
SHOWN = [
    pytest.param(page, text, id=f"{page.relative_to(PAGES)}:{match.start()}")
    for page in sorted(PAGES.rglob("*.md"))
    for match in FENCED.finditer(page.read_text(encoding="utf-8"))
    if (text := match[1]).startswith("name:")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages' files name: a text, and a model in place of hf:NAME@COMMIT."""
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("A novel.\n\n" * 10_000)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=2048,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").touch()  # weights are not read before a run
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_page_shows_a_file() -> None:
    assert SHOWN


@pytest.mark.parametrize(("page", "text"), SHOWN)
def test_a_shown_file_is_valid(page: Path, text: str, folder: Path) -> None:
    file = folder / "shown.yaml"
    file.write_text(text.replace("hf:NAME@COMMIT", "model"))
    if "plugins:" not in text:
        assert load_sweep(file).stages
        return
    plugin = PLUGIN.search(page.read_text(encoding="utf-8"))
    assert plugin is not None
    (folder / "mine.py").write_text(plugin[1])
    # In a process of its own: what a plug-in names stays known in the process that read it.
    command = [sys.executable, "-m", "fope_lab.cli", "validate", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
