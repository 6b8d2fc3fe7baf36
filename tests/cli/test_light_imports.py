"""Reading and planning a sweep imports nothing heavy, so that it answers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from heavy_imports import heavy_modules
from kept_sweep import ROPE, Scene
from sweep_files import BASE, write

SIZES = ["--head-dim", "64", "--train-length", "512", "--factor", "4"]


@pytest.mark.parametrize(
    "code",
    [
        "import fope_lab.sweep",
        "import fope_lab.sweep.schema as s; s.sweep_json_schema()",
        "from fope_lab.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from fope_lab.cli import main; assert main(['validate', PATH]) == 0",
        "from fope_lab.cli import main; assert main(['plan', PATH, '--store', 'none']) == 0",
        "from fope_lab.cli import main; assert main(['plan', PATH, '--json']) == 0",
        "from fope_lab.cli import main; assert main(['embeddings', '{type: rope}']) == 0",
        "from fope_lab.cli import main; assert main(['embeddings']) == 0",
        f"from fope_lab.cli import main; assert main(['embeddings', *{SIZES}]) == 0",
        f"from fope_lab.cli import main; assert main(['embeddings', 'fope-yarn', *{SIZES}]) == 0",
        "from fope_lab.cli import main; assert main(['scales']) == 0",
    ],
)
def test_nothing_heavy_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "sweep.yaml", BASE)
    assert heavy_modules(code.replace("PATH", repr(str(path)))) == []


def test_a_driver_starts_without_torch() -> None:
    assert "torch" not in heavy_modules("import fope_lab.orchestration.controller")


@pytest.mark.parametrize(
    "words",
    [
        ["new", "mine.yaml"],
        ["logs", ROPE],
        ["store", "list"],
        ["store", "show", ROPE],
        ["store", "prune"],
        ["store", "verify"],
        ["stop", "kept.yaml"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_to_look_after_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    scene = Scene(tmp_path)
    scene.save(ROPE, finish=True)
    monkeypatch.chdir(tmp_path)
    words = words if words[0] == "new" else [*words, *scene.options]
    assert heavy_modules(f"from fope_lab.cli import main; assert main({words!r}) == 0") == []


def test_the_check_sees_what_is_imported() -> None:
    assert heavy_modules("import torch") == ["torch"]
