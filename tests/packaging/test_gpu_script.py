"""The script for a machine with a GPU: what it needs, and what it says is missing."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import gpu
from benchmarks.gpu import JSON, PARTS, Part

PART = Part("something", ("-c", "print('measured')", JSON), 60)


def closure(packages: Iterable[str]) -> set[str]:
    """The installed packages among these and all that they require, in lower case."""
    found: set[str] = set()
    left = list(packages)
    while left:
        name = canonicalize_name(left.pop())
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            needs = (Requirement(one) for one in needed)
            left += [r.name for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def test_no_part_needs_a_package_that_is_not_listed(tmp_path: Path) -> None:
    allowed = closure(gpu.PACKAGES)
    assert not allowed & {"ray", "mlflow", "mlflow-skinny", "datasets", "fope-lab"}
    blocked = sorted(
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed
        and module not in {"fope_lab", "trainers", "benchmarks"}
    )
    assert {"ray", "mlflow", "datasets"} <= set(blocked)
    scripts = {name for part in PARTS.values() for name in part.command if name.endswith(".py")}
    assert {name for name in scripts if not name.startswith("benchmarks/")} == {
        "tests/model/test_attention.py",
        "tests/model/test_flex.py",
    }
    options = [
        (part.command[0], [*part.command[1:], *shlex.split(words)])
        for part in PARTS.values()
        for words in (part.full, part.toy)
    ]
    code = f"""
import runpy, sys
for name in {blocked}:
    sys.modules[name] = None  # importing it is an ImportError
loaded = {{}}
for script in {sorted(scripts)}:
    sys.path.insert(0, script.rpartition("/")[0])
    loaded[script] = runpy.run_path(script, run_name="imported")
for script, words in {options}:
    if "arguments" in loaded.get(script, ()):
        sys.argv = [script, *words]
        loaded[script]["arguments"]()  # a wrong option ends the process
sys.argv = ["resume.py", "--steps", "6", "--json", {str(tmp_path / "resume.json")!r}]
runpy.run_path("benchmarks/resume.py", run_name="__main__")
"""
    env = {**os.environ, "PYTHONPATH": str(gpu.ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gpu.ROOT,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.mark.parametrize("name", ["tests", "biases"])
def test_every_test_that_needs_a_gpu_is_run_there(name: str) -> None:
    command = PARTS[name].command
    [path] = (word for word in command if word.endswith(".py"))
    word = command[command.index("-k") + 1]
    tree = ast.parse((gpu.ROOT / path).read_text(encoding="utf-8"))
    marked = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            "needs_gpu" in text or "cuda.is_available()" in text
            for text in map(ast.unparse, node.decorator_list)
        )
    ]
    assert marked
    assert [test for test in marked if word not in test] == []


def test_no_other_file_has_a_test_that_needs_a_gpu() -> None:
    skipped = "skipif(" + "not torch.cuda.is_available()"  # in two, since this file is read, too
    found = {
        path.relative_to(gpu.ROOT).as_posix()
        for path in (gpu.ROOT / "tests").rglob("test_*.py")
        if skipped in path.read_text(encoding="utf-8")
    }
    assert found == {
        word for part in PARTS.values() for word in part.command if word.startswith("tests/")
    }


def test_a_toy_is_smaller() -> None:
    assert all(part.full != part.toy or not part.full for part in PARTS.values())


@pytest.mark.parametrize("found", ["def", "abc-dirty"])
def test_a_commit_beside_that_of_the_checkout_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: str
) -> None:
    monkeypatch.setattr(gpu, "PARTS", {"a": PART})
    monkeypatch.setattr(gpu, "commit", lambda: found)
    out = tmp_path / "out"
    words = ["gpu.py", "--toy", "--parts", "a", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", [*words, "--commit", "abc"])
    assert gpu.main() == 2
    said = capsys.readouterr().err
    assert f"--commit abc: this checkout is at {found}; leave --commit out" in said
    assert not out.exists()
    monkeypatch.setattr(sys, "argv", [*words, "--commit", found])
    assert gpu.main() == 0
    assert json.loads((out / "gpu.json").read_text())["commit"] == found


def test_a_checkout_that_changes_meanwhile_has_no_clean_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = iter(["abc", "abc", "def", "abc"])  # before all, and after each part
    monkeypatch.setattr(gpu, "PARTS", dict.fromkeys("abc", PART))
    monkeypatch.setattr(gpu, "commit", lambda: next(commits))
    words = ["gpu.py", "--toy", "--parts", *"abc", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    kept = []
    monkeypatch.setattr(gpu, "write", lambda folder, content: kept.append(content["commit"]))
    assert gpu.main() == 0
    assert kept == ["abc", "abc-dirty", "abc-dirty"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "out")])
    assert gpu.main() == 2
    assert "; --toy runs the same parts on the CPU" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_said_before_the_first_part() -> None:
    fit = {"gpu": "a GPU", "compiler": True, "headers": True, "packages": {"torch": "2.11"}}
    assert not list(gpu.problems(fit))
    unfit = {**fit, "headers": False, "packages": {"torch": "2.11", "pytest": None}}
    said = list(gpu.problems(unfit))
    assert said[0].startswith("not installed: pytest;")
    assert "Python.h" in said[1]
    assert not list(gpu.problems({**fit, "gpu": None, "compiler": False}))


def test_packages_that_were_carried_to_the_machine_stay_importable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/carried/wheels")
    assert gpu.environment()["PYTHONPATH"] == os.pathsep.join((str(gpu.ROOT), "/carried/wheels"))
    monkeypatch.delenv("PYTHONPATH")
    assert gpu.environment()["PYTHONPATH"] == str(gpu.ROOT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert gpu.environment()["CUDA_VISIBLE_DEVICES"] == "3"
