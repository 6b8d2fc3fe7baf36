"""The script for a machine with a GPU: what it needs, and that each part fails alone."""

from __future__ import annotations

import ast
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import gpu
from benchmarks.gpu import JSON, PARTS, Part, run_part, table, write


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


def test_the_last_parts_get_what_is_left_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"long": python("import time; time.sleep(600)"), "late": python("print(1)")}
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "TOTAL", 3)
    monkeypatch.setattr(gpu, "LEAST", 1)
    about = {"gpu": "a GPU", "cuda": "13.0", "compiler": False, "headers": True, "packages": {}}
    monkeypatch.setattr(gpu, "machine", lambda: {**about, "commit": None})
    words = ["gpu.py", "--parts", *parts, "--out", str(tmp_path), "--commit", "abc"]
    monkeypatch.setattr(sys, "argv", words)
    assert gpu.main() == 1
    said = capsys.readouterr()
    assert "late: no time is left" in said.out
    assert "there is no C compiler" in said.err
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["commit"] == "abc"
    assert {name: one["exit"] for name, one in found["parts"].items()} == {"long": None}
    assert found["parts"]["long"]["limit"] == 3


def python(code: str, *words: str, seconds: int = 60) -> Part:
    return Part("something", ("-c", code, *words), seconds)


def is_dead(process: str) -> bool:
    """Whether a process is gone, or waits for nothing but its parent to notice."""
    try:
        text = Path("/proc", process, "stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def ends(process: str) -> bool:
    """Whether a process that was killed ends, which takes a moment."""
    deadline = time.monotonic() + 60
    while not is_dead(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_dead(process)


HALF = "import sys; open(sys.argv[1], 'w').write('{\"x\":'); raise SystemExit(1)"
WRITES = "import sys; open(sys.argv[1], 'w').write('{\"x\": 1}'); print('measured')"


def test_a_part_fails_or_hangs_alone(tmp_path: Path) -> None:
    leaves = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print(child.pid, flush=True)"
    )
    parts = {
        "good": python(WRITES, JSON),
        "bad": python("raise SystemExit('no such kernel')"),
        "half": python(HALF, JSON),
        "slow": python(f"{leaves}; time.sleep(600)", seconds=3),
        "leaves": python(leaves),
        "after": python("print('still here')"),
    }
    results = {}
    for name, part in parts.items():
        results[name] = run_part(part, toy=False, figures=tmp_path / f"{name}.json")
    assert {name: one["exit"] for name, one in results.items()} == {
        "good": 0,
        "bad": 1,
        "half": 1,
        "slow": None,
        "leaves": 0,
        "after": 0,
    }
    assert results["good"]["figures"] == {"x": 1}
    assert results["half"]["figures"] is None
    assert results["bad"]["output"] == ["no such kernel"]
    assert all(ends(results[name]["output"][0]) for name in ("slow", "leaves"))
    write(tmp_path, {"parts": results})
    assert json.loads((tmp_path / "gpu.json").read_text())["parts"] == results
    lines = (tmp_path / "gpu.txt").read_text().splitlines()
    assert [line.split()[1] for line in lines[1:6]] == ["ok", "exit", "exit", "too", "ok"]
    assert "still here" in table(results)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_part_ends_with_the_script(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import sys
from pathlib import Path
from benchmarks import gpu
gpu.end_in_order()
sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
gpu.run_part(gpu.Part("", ("-c", sleeps), 600), False, Path({str(tmp_path / "x.json")!r}))
"""
    script = subprocess.Popen([sys.executable, "-c", code], cwd=gpu.ROOT, stderr=subprocess.PIPE)
    log = tmp_path / "x.log"
    while not (log.exists() and log.read_text(encoding="utf-8").endswith("\n")):
        assert script.poll() is None
        time.sleep(0.05)
    part = log.read_text(encoding="utf-8").strip()
    script.send_signal(number)
    script.communicate(timeout=60)
    assert is_dead(part)
    assert not log.exists()


@pytest.mark.parametrize("found", ["def", "abc-dirty"])
def test_a_commit_beside_that_of_the_checkout_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: str
) -> None:
    monkeypatch.setattr(gpu, "PARTS", {"a": python(WRITES, JSON)})
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
    monkeypatch.setattr(gpu, "PARTS", dict.fromkeys("abc", python(WRITES, JSON)))
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
