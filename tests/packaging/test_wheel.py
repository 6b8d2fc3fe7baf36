"""A wheel holds what a clone has, and its base install validates and plans in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fope_lab.config.environment import EXTRA_OF

ROOT = Path(__file__).parents[2]
SOURCES = ("fope_lab", "trainers", "sweeps")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "constraints.txt")
DATA = ("py.typed", "*.yaml", "*.json", "*.j2", "*.js")
"""The files beside modules that the code reads."""
START = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from fope_lab.cli import main
for words in {commands!r}:
    if code := main(words):
        sys.exit(code)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the checkout, where no older build leaves anything."""
    root = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / "source" / name, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, root / "source" / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", root, root / "source")
    [path] = root.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--target", folder, wheel)
    return folder


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def in_base_install(
    installed: Path, folder: Path, *commands: list[str]
) -> subprocess.CompletedProcess[str]:
    """Run commands of the wheel where the packages of all extras are missing."""
    folder.mkdir(exist_ok=True)
    script = folder.parent / "start.py"
    script.write_text(START.format(packages=set(EXTRA_OF), commands=commands))
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_holds_every_module_and_every_file_that_the_code_reads(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("fope_lab", "trainers")
        for pattern in ("*.py", *DATA)
        for path in (ROOT / package).rglob(pattern)
    }
    assert expected - inside == set()
    sweeps = {
        f"fope_lab/shipped_sweeps/{path.relative_to(ROOT / 'sweeps').as_posix()}"
        for path in (ROOT / "sweeps").rglob("*.*")
    }
    assert {name for name in inside if "shipped_sweeps" in name} == sweeps
    assert len(sweeps) > 25


def test_the_tested_versions_come_with_it_where_the_readme_finds_them(
    wheel: Path, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count(wheel.name) == 2
    [constraints] = re.findall(rf"--constraint (\S+) '{wheel.name}\[all\]'", readme)
    extract = [sys.executable, "-m", "zipfile", "-e", str(wheel), "unpacked"]
    subprocess.run(extract, cwd=tmp_path, check=True)
    tested = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert (tmp_path / constraints).read_text(encoding="utf-8") == tested


def test_the_sweeps_that_the_readme_names_are_there_in_an_empty_folder(
    installed: Path, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"fope-lab (?:plan|run|report|submit) ([^\s`]+)", readme)))
    assert len(named) > 3
    done = in_base_install(installed, tmp_path / "empty", *(["validate", one] for one in named))
    assert done.returncode == 0, done.stderr


def test_the_base_install_validates_and_plans(installed: Path, tmp_path: Path) -> None:
    validate = ["validate", "quickstart", "mini/fope-table2", "resonance"]
    done = in_base_install(installed, tmp_path / "empty", validate, ["plan", "quickstart"])
    assert done.returncode == 0, done.stderr
    assert str(installed / "fope_lab/shipped_sweeps/quickstart.yaml") in done.stdout
    assert "pretrain" in done.stdout
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_base_install_says_what_a_run_needs(installed: Path, tmp_path: Path) -> None:
    done = in_base_install(installed, tmp_path / "empty", ["run", "quickstart"])
    assert done.returncode == 2
    assert done.stderr.endswith(
        "needs torch, ray, mlflow, which are not installed: pip install 'fope-lab[all]'\n"
    )
    assert list((tmp_path / "empty").iterdir()) == []
