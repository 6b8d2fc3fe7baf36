"""The notebooks are committed with the outputs of their sources; `make recordings` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the extra [docs] is not installed")

import nbformat

from docs.execute_notebooks import read_source
from docs.generate.notebooks import FOLDER
from docs.generate.transcripts import recorded, steps

SOURCES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_committed_notebook_is_that_of_its_source(source: Path) -> None:
    committed = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    expected = read_source(source)
    assert [cell.source for cell in committed.cells] == [cell.source for cell in expected.cells]
    assert all(cell.execution_count for cell in committed.cells if cell.cell_type == "code")


def test_the_recorded_tutorial_is_that_of_its_page() -> None:
    assert list(recorded()) == steps()
