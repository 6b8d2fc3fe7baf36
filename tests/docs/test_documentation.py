"""The documentation is built from the code, without a warning, and is whole by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the extra [docs] is not installed")

from docs.build import PARTS, write_sources
from docs.generate.assemble import UnknownPartError, fill
from docs.generate.formula import formula, formulas
from docs.generate.troubleshooting import is_in_code
from fope_lab.cli.app import COMMANDS
from fope_lab.embeddings import embedding_names
from fope_lab.embeddings.base import EMBEDDING_TYPES, TRANSFORM_TYPES

LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?(https?:)?//")
"""A tag that makes a browser fetch something from another place."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; Zensical ends with an error for every broken link and anchor."""
    folder = tmp_path_factory.mktemp("documentation") / "made"
    config = write_sources(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(config)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_it_shows_every_embedding_and_command(site: Path) -> None:
    for name in embedding_names():
        text = (site / "gallery" / name / "index.html").read_text(encoding="utf-8")
        assert "<svg" in text, name
    commands = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f'id="fope-lab-{name}"' in commands


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<!-- insert" not in text, page
        tags = [tag[0] for tag in LOADS.finditer(text) if 'rel="canonical"' not in tag[0]]
        assert not tags, page


def test_formulas_are_those_of_embeddings_that_there_are() -> None:
    assert set(formulas()) <= {*EMBEDDING_TYPES.all(), *TRANSFORM_TYPES.all()}


def test_a_formula_has_the_colours_of_its_page() -> None:
    """A white rectangle behind it would hide the light text of a dark page."""
    drawing = formula("yarn")
    assert drawing is not None
    assert set(re.findall(r"fill: ([^;\"]+)", drawing)) == {"currentColor", "none"}


def test_a_part_that_nothing_generates_is_an_error() -> None:
    with pytest.raises(UnknownPartError, match=r"page\.md: no part 'metrcs'"):
        fill("<!-- insert: metrcs -->", PARTS, "page.md")


def test_an_error_text_must_be_in_the_code() -> None:
    assert is_in_code("num_heads … is not divisible by num_kv_heads …")
    assert not is_in_code("num_heads … is not a multiple of num_kv_heads")
