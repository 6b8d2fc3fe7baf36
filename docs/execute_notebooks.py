"""Run the notebooks, and write them with their outputs.

    python -m docs.execute_notebooks [NAME …]

A notebook's source is docs/notebooks/NAME.py, in the percent format: `# %%` begins a cell of code,
and `# %% [markdown]` one of text. NAME.ipynb beside it is committed with the outputs that it shows.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from docs.generate.notebooks import FOLDER

TEMPORARY = re.compile(r"/\S*/tmp\w{8}(?=/)")
"""The folder that a notebook works in, which is another one each time."""
CELL = re.compile(r"^# %%(?P<text> \[markdown\])?\n", flags=re.MULTILINE)


def read_source(path: Path) -> Any:
    """The notebook of a source, without outputs."""
    _, *parts = CELL.split(path.read_text(encoding="utf-8"))
    cells = []
    for number, (kind, body) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        if kind:
            text = re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)
            cell = nbformat.v4.new_markdown_cell(text)
        else:
            cell = nbformat.v4.new_code_cell(body.strip())
        cell["id"] = f"cell-{number}"
        cells.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def execute(path: Path) -> Any:
    """The notebook of a source with its outputs. Raises CellExecutionError."""
    notebook = read_source(path)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell["metadata"] = {}  # when it ran
        if "outputs" in cell:
            cell["outputs"] = [portable(each) for each in cell["outputs"] if not _is_noise(each)]
    return notebook


def portable(value: Any) -> Any:
    """An output, or a part of it, without the name of the folder that the notebook worked in."""
    if isinstance(value, str):
        return TEMPORARY.sub("~/notebook", value)
    if isinstance(value, dict):
        return type(value)({key: portable(item) for key, item in value.items()})
    return value


def _is_noise(output: Any) -> bool:
    """Whether an output is a warning of a library, which differs from machine to machine."""
    return bool(output.get("name") == "stderr")


def main() -> None:
    """Run the named notebooks, or all."""
    names = sys.argv[1:] or [path.stem for path in sorted(FOLDER.glob("*.py"))]
    for name in names:
        started = time.monotonic()
        notebook = execute(FOLDER / f"{name}.py")
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{time.monotonic() - started:6.1f} s  {name}")


if __name__ == "__main__":
    main()
