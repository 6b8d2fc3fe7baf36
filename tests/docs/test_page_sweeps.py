"""The sweep files that the documentation's pages show in full are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import LlamaConfig

from fope_lab.sweep import load_sweep

PAGES = Path(__file__).parents[2] / "docs" / "pages"
FENCED = re.compile(r"^ *```ya?ml\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
SHOWN = [
    pytest.param(text, id=f"{page.relative_to(PAGES)}:{match.start()}")
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


@pytest.mark.parametrize("text", SHOWN)
def test_a_shown_file_is_valid(text: str, folder: Path) -> None:
    file = folder / "shown.yaml"
    file.write_text(text.replace("hf:NAME@COMMIT", "model"))
    assert load_sweep(file).stages
