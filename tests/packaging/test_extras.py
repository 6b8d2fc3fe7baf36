"""Every imported package is declared, and what the base install lacks is named by its extra."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fope_lab.cli import COMMANDS, main
from fope_lab.config import environment
from fope_lab.config.environment import EXTRA_OF, MissingPackageError, require_packages

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = {"fope_lab", "trainers"}
DISTRIBUTIONS = {"IPython": "ipython", "yaml": "pyyaml"}
"""The distributions whose name is not that of the module."""


def imported(source: str) -> Iterator[str]:
    """The packages that a source imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def names(requirements: list[str]) -> set[str]:
    """The distributions of requirements, without versions and extras."""
    return {re.split(r"[\[<>=!~ ;]", text)[0].lower().replace("_", "-") for text in requirements}


def distribution(package: str) -> str:
    return DISTRIBUTIONS.get(package, package).replace("_", "-")


@functools.cache
def third_party() -> frozenset[str]:
    files = [path for package in OWN for path in (ROOT / package).rglob("*.py")]
    found = {name for path in files for name in imported(path.read_text(encoding="utf-8"))}
    return frozenset(found - OWN - set(sys.stdlib_module_names))


BASE = names(PROJECT["dependencies"])
EXTRAS = {name: names(each) for name, each in PROJECT["optional-dependencies"].items()}


def test_every_imported_package_is_declared() -> None:
    declared = BASE | set().union(*(EXTRAS[name] for name in set(EXTRA_OF.values()))) - {"fope-lab"}
    assert {name for name in third_party() if distribution(name) not in declared} == set()


def test_what_is_declared_is_imported() -> None:
    declared = BASE | set().union(*(EXTRAS[name] for name in set(EXTRA_OF.values()))) - {"fope-lab"}
    assert declared - set(map(distribution, third_party())) == set()


def test_errors_name_the_extra_that_has_the_package() -> None:
    lacking = {name for name in third_party() if distribution(name) not in BASE}
    assert EXTRA_OF.keys() == lacking
    for package, extra in EXTRA_OF.items():
        assert distribution(package) in EXTRAS[extra], package


def test_all_is_all() -> None:
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert everything == "fope-lab[train,cluster,tracking]"
    assert {EXTRA_OF[name] for name in environment.RUN} == {"train", "cluster", "tracking"}


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let packages not be installed, as far as `require_packages` sees."""
    real = environment._is_installed
    monkeypatch.setattr(
        environment, "_is_installed", lambda name: name not in packages and real(name)
    )


def test_a_run_without_ray_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "ray")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "quickstart", "--store", "store"]) == 2
    assert capsys.readouterr().err == (
        "error: running a sweep needs ray, which is not installed: "
        "pip install 'fope-lab[all]', or for this alone 'fope-lab[cluster]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_several_packages_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, *environment.RUN)
    with pytest.raises(MissingPackageError) as error:
        require_packages("this", environment.RUN)
    assert str(error.value) == (
        "this needs torch, ray, mlflow, which are not installed: pip install 'fope-lab[all]'"
    )


def test_a_command_that_meets_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        def run(options: object) -> int:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        monkeypatch.setitem(COMMANDS, "schema", replace(COMMANDS["schema"], run=run))

    missing("mlflow.tracking")
    assert main(["schema"]) == 2
    assert "`fope-lab schema` needs mlflow" in capsys.readouterr().err
    missing("fope_lab.typo")  # a defect, which must not be explained away
    with pytest.raises(ModuleNotFoundError):
        main(["schema"])


def test_what_all_has_not_is_not_promised_of_it() -> None:
    told = environment.missing_packages("this", ["lm_eval"])
    assert told.endswith("not installed: pip install 'fope-lab[lm-eval]'")
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"[a-z]+(?=[,\]])", everything)) == environment.ALL
