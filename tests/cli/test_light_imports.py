"""Planning a sweep and looking after a store import nothing heavy, so that they answer at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from heavy_imports import HEAVY, heavy_modules
from kept_sweep import ROPE, Scene
from sweep_files import BASE, write

SIZES = ["--head-dim", "64", "--train-length", "512"]
COMMANDS = [
    ["--help"],
    ["validate", "sweep.yaml"],
    ["plan", "sweep.yaml", "--store", "none"],
    ["plan", "sweep.yaml", "--json"],
    ["embeddings", "{type: rope}"],
    ["embeddings"],
    ["embeddings", "fope", *SIZES],
    ["scales"],
    ["new", "mine.yaml"],
    ["logs", ROPE],
    ["store", "list"],
    ["store", "show", ROPE],
    ["store", "prune"],
    ["store", "verify"],
    ["stop", "kept.yaml"],
]
IN_ORDER = f"""
import json, sys

def heavy():
    return [name for name in {HEAVY} if name in sys.modules]

import fope_lab.sweep
found = {{"import": heavy()}}
from fope_lab.sweep.schema import sweep_json_schema
sweep_json_schema()
found["schema"] = heavy()
from fope_lab.cli import main
for words in {COMMANDS}:
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    found[" ".join(words)] = heavy() or code
import fope_lab.orchestration.run_sweeps  # which imports the controller where there is work
found["run"] = [name for name in heavy() if name == "ray"]
import fope_lab.orchestration.controller
found["driver"] = [name for name in heavy() if name == "torch"]
print(json.dumps(found), file=sys.stderr)
"""


def test_nothing_heavy_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process asks all: what is imported stays, so the first that shows it is at fault. The
    driver of a run, which needs ray, starts without torch."""
    monkeypatch.chdir(tmp_path)
    scene = Scene(tmp_path)
    scene.save(ROPE, finish=True)
    monkeypatch.setenv("FOPE_LAB_STORE", str(scene.store.root))
    write(tmp_path / "sweep.yaml", BASE)
    done = subprocess.run(
        [sys.executable, "-c", IN_ORDER], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stderr.splitlines()[-1])
    assert len(found) == 4 + len(COMMANDS)
    assert {name: heavy for name, heavy in found.items() if heavy} == {}


def test_the_check_sees_what_is_imported() -> None:
    assert heavy_modules("import scipy") == ["scipy"]
