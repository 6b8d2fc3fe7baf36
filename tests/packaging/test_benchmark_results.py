"""benchmarks/results.py: the page shows what was measured, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def results(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "results.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def copy(folder: Path) -> Path:
    """The scripts in a folder of their own, with nothing measured."""
    for name in ("results.py", "gpu.py"):
        shutil.copy(ROOT / "benchmarks" / name, folder)
    return folder


def measured(**fields: object) -> dict[str, object]:
    about = {
        "command": "python benchmarks/cpus.py",
        "commit": "0123456789abcdef-dirty",
        "date": "2026-01-02",
        "machine": "a processor, 2 cores",
        "load": 0.25,
        "python": "3.11.2",
        "torch": "2.13.0",
        "exit": 0,
        "seconds": 12.3,
        "output": ["one on 2 CPUs  123 tokens/s"],
        "figures": None,
    }
    return {**about, **fields}


def test_the_page_is_what_was_measured() -> None:
    found = results(ROOT / "benchmarks", "--check")
    assert found.returncode == 0, found.stderr


def test_a_figure_that_changes_by_hand_is_found(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    (folder / "results").mkdir()
    (folder / "results" / "cpus.json").write_text(json.dumps(measured()))
    assert results(folder, "--render").returncode == 0
    page = folder / "RESULTS.md"
    text = page.read_text(encoding="utf-8")
    assert "on 2026-01-02, commit 0123456-dirty, in 12 s." in text
    assert "one on 2 CPUs  123 tokens/s" in text
    assert results(folder, "--check").returncode == 0
    page.write_text(text.replace("123 tokens", "124 tokens"), encoding="utf-8")
    found = results(folder, "--check")
    assert found.returncode == 1
    assert "RESULTS.md is not what --render writes" in found.stderr


def test_an_unknown_part_is_an_error(tmp_path: Path) -> None:
    found = results(copy(tmp_path), "cpu")
    assert found.returncode == 2
    assert "no part 'cpu' (allowed: quickstart, training" in found.stderr
