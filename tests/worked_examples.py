"""CONTRIBUTING's worked examples, done as it says: files dropped into a copy of the checkout.

The code of the copy comes first for every process that starts from it. Nothing of it reaches the
processes of the other tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("fope_lab", "trainers", "tests/embeddings", "tests/sweep", "sweeps")
SINGLE = (
    "pyproject.toml",
    "setup.py",
    "constraints.txt",
    "Makefile",
    "tests/conftest.py",
    "tests/example_embeddings.py",
    "tests/shipped.py",
    "tests/sweep_files.py",
    "docs/generate/shipped.py",
)

EXAMPLES = {
    "Adding an embedding": ("fope_lab/embeddings/gaussian.py", "tests/embeddings/test_gaussian.py"),
    "Adding a frequency transform": (
        "fope_lab/embeddings/abf.py",
        "tests/embeddings/test_abf.py",
    ),
    "Adding a family of models": (
        "fope_lab/model/families/ministral.py",
        "tests/model/huggingface/test_ministral.py",
    ),
    "Adding an evaluation": (
        "fope_lab/evaluation/induction.py",
        "tests/evaluation/test_induction.py",
    ),
    "Adding an analysis": ("fope_lab/analysis/cycles.py", "tests/analysis/test_cycles.py"),
}


def files_of(title: str) -> dict[str, str]:
    """The files, by path, that a section of CONTRIBUTING shows whole."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [section] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", section, flags=re.DOTALL))


FILES = {path: text for title in EXAMPLES for path, text in files_of(title).items()}


def checkout_with(files: dict[str, str], folder: Path) -> Path:
    """A copy of the checkout in `folder`, with these files added."""
    for name in FOLDERS:  # with the compiled modules: to compile them again takes seconds
        shutil.copytree(ROOT / name, folder / name)
    for name in SINGLE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for path, text in files.items():
        assert not (folder / path).exists(), path
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def python(*arguments: str | Path, checkout: Path, folder: Path) -> str:
    """Run `python -m …` in a folder with a checkout's code. Returns what it printed."""
    done = execute(sys.executable, "-m", *arguments, checkout=checkout, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write_schema(checkout: Path) -> None:
    """Do what `make schema` does in a checkout."""
    text = python("fope_lab.cli", "schema", checkout=checkout, folder=checkout)
    (checkout / "sweeps/schema.json").write_text(text, encoding="utf-8")


def execute(*command: str | Path, checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with a checkout's code."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(checkout)},
        check=False,
    )
