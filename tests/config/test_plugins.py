"""Code from outside: found by path and by name, once, and what a sweep file is told if it can't."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fope_lab.config import plugins
from fope_lab.config.plugins import WithPlugins, load_plugins, loaded_plugins
from fope_lab.config.problems import ConfigError, Problem, SweepError
from fope_lab.embeddings import embedding_names
from fope_lab.embeddings.base import EMBEDDING_TYPES
from fope_lab.sweep import load_sweep

MINE = """
from dataclasses import dataclass
from fope_lab.embeddings.base import Embedding

@dataclass(frozen=True, kw_only=True)
class Mine(Embedding, name="mine", source="me"):
    strength: float = 1.0
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Afterwards no plug-in of the test is there."""
    embedding_names()
    before, types = loaded_plugins(), EMBEDDING_TYPES.registered()
    yield
    for plugin in set(loaded_plugins()) - set(before):
        del plugins._loaded[plugin.module], sys.modules[plugin.module]
    EMBEDDING_TYPES.restore(types)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def _problems(tmp_path: Path, *names: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load_plugins(names, tmp_path)
    return caught.value.problems


def test_a_file_is_imported_once(mine: Path, tmp_path: Path) -> None:
    load_plugins(["./mine.py", str(mine)], tmp_path)
    load_plugins([f"../{tmp_path.name}/mine.py"], tmp_path)
    assert "mine" in embedding_names()
    assert [plugin.name for plugin in loaded_plugins() if plugin.by_path] == ["mine.py"]


def test_a_file_and_its_module_are_one(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "a_package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("from .inside import *\n")
    mine.rename(package / "inside.py")
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(
        ["./a_package_of_mine/inside.py", "a_package_of_mine", "./a_package_of_mine"], tmp_path
    )
    load_plugins(["a_package_of_mine.inside"])
    assert "mine" in embedding_names()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1 / 0", "wrong.py, line 1: raises ZeroDivisionError on import: division by zero"),
        ("import os\na b", "wrong.py, line 2: raises SyntaxError on import: invalid syntax"),
        ("import sys\n\nsys.exit(3)", "wrong.py, line 3: raises SystemExit on import: 3"),
        (MINE.replace('"mine"', '"alibi"'),
         "wrong.py, line 6: Mine can't be 'alibi',"
         " which is the name of fope_lab.embeddings.alibi.Alibi"),
        (MINE.replace('"mine"', '"rope"'),
         "wrong.py, line 6: Mine can't be 'rope', which is the name of a preset"),
        (MINE + MINE.replace("class Mine", "class Other"),
         "wrong.py, line 13: Other can't be 'mine', which is the name of plugin_wrong.Mine"),
    ],
)  # fmt: skip
def test_a_plugin_that_can_not_be_used_is_one_problem(
    text: str, fault: str, mine: Path, tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(text)
    assert _problems(tmp_path, "./wrong.py") == (Problem((0,), fault),)
    load_plugins(["./mine.py"], tmp_path)  # nothing of the wrong one stays


@pytest.mark.parametrize(
    ("name", "fault", "nearest"),
    [
        ("./mnie.py", "./mnie.py is not there", "./mine.py"),
        ("mine", "mine is not installed", "./mine.py"),
        ("numppy", "numppy is not installed", "numpy"),
        (".", ". is a folder without an __init__.py", None),
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_plugin_that_is_not_there(
    name: str, fault: str, nearest: str | None, tmp_path: Path
) -> None:
    assert _problems(tmp_path, name) == (Problem((0,), fault, nearest=nearest),)


def test_a_sweep_file_is_told_the_line(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("name: a\nplugins:\n  - ./nothing.py\nstages: {a: {kind: nothing}}\n")
    with pytest.raises(SweepError) as caught:
        load_sweep(file)
    [problem] = caught.value.problems
    assert (problem.line, problem.path) == (3, ("plugins", 0))


def test_another_process_imports_the_plugins_first(mine: Path, tmp_path: Path) -> None:
    load_plugins([mine])
    kind = EMBEDDING_TYPES.all()["mine"]
    (tmp_path / "value").write_bytes(pickle.dumps(WithPlugins(kind(strength=3.0))))
    read = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).value)"
    command = [sys.executable, "-c", read, str(tmp_path / "value")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Mine(query_scale=None, strength=3.0)"
