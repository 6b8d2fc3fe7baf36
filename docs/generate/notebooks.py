"""The notebooks, as pages: their text, their code and the outputs that they were committed with."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import nbformat

from docs.generate.shipped import ROOT

FOLDER = ROOT / "docs" / "notebooks"


def notebook_files() -> list[Path]:
    """Every committed notebook."""
    return sorted(FOLDER.glob("*.ipynb"))


def pages() -> dict[str, str]:
    """The page of each notebook, by its path within the site."""
    return {f"notebooks/{path.stem}.md": _converted(path)[0] for path in notebook_files()}


def write_pictures(site: Path) -> None:
    """Write the pictures of all notebooks beside their pages."""
    for path in notebook_files():
        for name, data in _converted(path)[1].items():
            (site / "notebooks" / name).write_bytes(data)


@functools.cache
def _converted(path: Path) -> tuple[str, dict[str, bytes]]:
    from nbconvert import MarkdownExporter

    notebook: Any = nbformat.read(path, as_version=4)
    names = {"unique_key": path.stem, "output_files_dir": ""}
    text, resources = MarkdownExporter().from_notebook_node(notebook, resources=names)
    note = f"*This page is the notebook `docs/notebooks/{path.name}`, with its outputs.*"
    # Styles inside a table of pandas would be text of the page.
    text = re.sub(r"<style scoped>.*?</style>", "", text, flags=re.DOTALL)
    head, _, rest = text.strip().partition("\n")
    return f"{head}\n\n{note}\n{rest}\n", resources["outputs"]
