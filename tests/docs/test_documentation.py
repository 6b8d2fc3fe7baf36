"""The documentation is built from the code, without a warning, and is whole by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the extra [docs] is not installed")

from docs.build import PARTS, faults
from docs.generate.assemble import UnknownPartError, fill
from docs.generate.formula import formula, formulas
from docs.generate.troubleshooting import is_in_code
from fope_lab.cli import COMMANDS
from fope_lab.embeddings import embedding_names
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES


def test_a_fault_of_a_built_page_is_found(tmp_path: Path) -> None:
    for name in embedding_names():
        (tmp_path / "gallery" / name).mkdir(parents=True)
        (tmp_path / "gallery" / name / "index.html").write_text("<svg>")
    commands = tmp_path / "reference" / "commands" / "index.html"
    commands.parent.mkdir(parents=True)
    commands.write_text("".join(f'<h2 id="fope-lab-{name}">' for name in COMMANDS))
    assert not list(faults(tmp_path))
    (tmp_path / "gallery" / "rope" / "index.html").write_text('<img src="https://example.org/a">')
    commands.write_text(commands.read_text().replace('"fope-lab-run"', '"run"'))
    (tmp_path / "index.html").write_text("<!-- insert: metrics -->")
    said = " ".join(faults(tmp_path))
    for part in ("gallery/rope: no picture", "fetches <img", "no command run", "not filled in"):
        assert part in said


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
