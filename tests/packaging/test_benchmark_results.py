"""benchmarks/results.py: the page shows what was measured, and nothing else."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """What a script has said in this process."""

    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def scripts(folder: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """gpu.py and results.py of a folder, which find what belongs to them there."""
    with pytest.MonkeyPatch.context() as patch:
        modules = []
        for name in ("gpu", "results"):
            spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
            modules.append(module)
        yield modules[0], modules[1]


def results(folder: Path, *words: str) -> Ended:
    out, err = io.StringIO(), io.StringIO()
    with (
        scripts(folder) as (_, module),
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(module, "LOOK", 0.1)
        patch.setattr(sys, "argv", ["results.py", *words])
        try:
            code = module.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


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


WRITES = "figures.write_text(json.dumps({'x': 1}))"
CHANGES = "Path('benchmarks/gpu.py').open('a').write('# changed')"
COMMITS = """
import subprocess
who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
subprocess.run(["git", *who, "commit", "--allow-empty", "-qm", "b"], check=True)
"""


def add(folder: Path, code: str, *parts: str) -> None:
    """Add parts whose scripts run this code, after `figures`, the path of their JSON."""
    for part in parts:
        start = "import json, sys; from pathlib import Path; figures = Path(sys.argv[-1])"
        (folder / f"{part}.py").write_text(f"{start}\n{code}\n", encoding="utf-8")
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-qm", "a part")


def measure(folder: Path, code: str, *parts: str) -> Ended:
    add(folder, code, *parts)
    return results(folder, *parts)


def kept(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results" / name).read_text(encoding="utf-8"))
    return content


def commit_of(folder: Path) -> str:
    """The commit that is kept with a figure."""
    with scripts(folder) as (gpu, _):
        return str(gpu.commit())


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
    assert "no part 'cpu'; did you mean 'cpus'? (allowed: quickstart, training" in found.stderr


def on_a_gpu(*parts: str, **fields: object) -> dict[str, Any]:
    """What benchmarks/gpu.py writes of these parts."""
    part = {
        "command": ["benchmarks/training.py", "--json", "FILE"],
        "exit": None,
        "seconds": 90.2,
        "output": ["ours  123 tokens/s"],
        "figures": None,
    }
    about = {
        "gpu": "NVIDIA H100 80GB HBM3",
        "gpu_memory": 80 * 2**30,
        "cuda": "13.0",
        "toy": False,
        "python": "3.12.1",
        "packages": {"torch": "2.11.0", "transformers": "5.1.0"},
        "date": "2026-01-02",
        "commit": "0123456789abcdef",
        "seconds": 400.0,
        "parts": {name: {**part, "shows": f"speed of {name}"} for name in parts},
    }
    return {**about, **fields}


def take_in(folder: Path, content: dict[str, Any]) -> str:
    """What is said when a gpu.json is taken in."""
    given = folder / "gpu.json"
    given.write_text(json.dumps(content), encoding="utf-8")
    found = results(folder, "--gpu", str(given))
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_what_a_gpu_measured_is_taken_in(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    assert "something: nothing was kept before" in take_in(folder, on_a_gpu("something"))
    text = (folder / "RESULTS.md").read_text(encoding="utf-8")
    assert "`make gpu`, commit 0123456. NVIDIA H100 80GB HBM3; Python 3.12.1,\n" in text
    assert "### Speed of something" in text
    command = "`python benchmarks/training.py --json FILE`"
    assert f"{command} on 2026-01-02, past its limit,\n90 s." in text
    assert "ours  123 tokens/s" in text
    assert results(folder, "--check").returncode == 0


def test_parts_of_the_same_gpu_commit_and_versions_are_merged(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    take_in(folder, on_a_gpu("a", "b"))
    said = take_in(folder, on_a_gpu("b", "c", date="2026-01-03"))
    assert "b, c: merged with what was kept before: a, b" in said
    dates = {name: one["date"] for name, one in kept(folder, "gpu.json")["parts"].items()}
    assert dates == {"a": "2026-01-02", "b": "2026-01-03", "c": "2026-01-03"}
    assert results(folder, "--check").returncode == 0


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"commit": "fedcba"}, ", which has another commit"),
        ({}, {"gpu": "NVIDIA H200"}, ", which has another gpu"),
        ({}, {"python": "3.11.2", "packages": {"torch": "2.12.0", "transformers": "5.1.0"}},
         ", which has another python, packages"),
        ({"commit": "abc-dirty"}, {"commit": "abc-dirty"}, ": the commit is abc-dirty"),
        ({"commit": None}, {"commit": None}, ": the commit is unknown"),
    ],
)  # fmt: skip
def test_other_parts_are_replaced(
    tmp_path: Path, before: dict[str, object], after: dict[str, object], why: str
) -> None:
    folder = copy(tmp_path)
    take_in(folder, on_a_gpu("a", **before))
    said = take_in(folder, on_a_gpu("b", **after))
    assert said == f"b: replaces what was kept before{why}\n"
    assert list(kept(folder, "gpu.json")["parts"]) == ["b"]


def test_a_toy_run_is_not_taken_in(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    given = tmp_path / "gpu.json"
    given.write_text(json.dumps({"gpu": None, "toy": True, "parts": {}}))
    found = results(folder, "--gpu", str(given))
    assert found.returncode == 1
    assert f"{given}: found a toy run, needs one on a GPU" in found.stderr
    assert not (folder / "results" / "gpu.json").exists()


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True)


def checkout(root: Path) -> Path:
    """The scripts in a repository of their own, with kept figures; returns their folder."""
    folder = root / "benchmarks"
    (folder / "results").mkdir(parents=True)
    copy(folder)
    for name in ("RESULTS.md", "results/cpus.json"):
        (folder / name).write_text("", encoding="utf-8")
    shutil.copy(ROOT / ".gitignore", root)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    return folder


def test_kept_figures_do_not_mark_a_commit_as_changed(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    for name in ("RESULTS.md", "results/cpus.json", "results/new.json"):
        (folder / name).write_text("measured", encoding="utf-8")
    assert len(commit_of(folder)) == 40
    (folder / "results.py").write_text("", encoding="utf-8")
    assert commit_of(folder).endswith("-dirty")


def test_parts_that_change_nothing_are_kept_with_the_commit(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    found = measure(folder, WRITES, "cpus", "scales")
    assert found.returncode == 0, found.stderr
    clean = commit_of(folder)
    assert len(clean) == 40
    for name in ("cpus.json", "scales.json"):
        assert (kept(folder, name)["commit"], kept(folder, name)["figures"]) == (clean, {"x": 1})


@pytest.mark.parametrize("code", [CHANGES, COMMITS])
def test_a_part_during_which_the_checkout_changed_has_no_clean_commit(
    tmp_path: Path, code: str
) -> None:
    folder = checkout(tmp_path)
    found = measure(folder, code, "cpus")
    assert found.returncode == 0, found.stderr
    command = ["git", "-C", str(folder), "log", "--format=%H", "--grep=a part"]
    before = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert kept(folder, "cpus.json")["commit"] == f"{before}-dirty"
    assert f"commit {before[:7]}-dirty" in found.stdout


def test_what_a_part_measured_before_it_failed_is_kept_apart(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    whole = measured(figures={"x": 0})
    (folder / "results" / "cpus.json").write_text(json.dumps(whole), encoding="utf-8")
    found = measure(folder, f"{WRITES}; sys.exit('no memory')", "cpus")
    assert found.returncode == 1
    path = folder / "results" / "cpus.partial.json"
    assert f"no memory\ncpus: what it measured is in {path}" in found.stderr
    partial = kept(folder, path.name)
    assert (partial["exit"], partial["figures"]) == (1, {"x": 1})
    assert partial["commit"] == commit_of(folder)
    assert kept(folder, "cpus.json") == whole
    assert "no memory" not in (folder / "RESULTS.md").read_text(encoding="utf-8")
    command = ["git", "-C", str(folder), "status", "--porcelain"]
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert status.split() == ["M", "benchmarks/RESULTS.md"]

    assert measure(folder, "sys.exit(1)", "cpus").returncode == 1  # it had measured nothing
    assert kept(folder, path.name)["figures"] is None
    assert measure(folder, WRITES, "cpus").returncode == 0
    assert kept(folder, "cpus.json")["figures"] == {"x": 1}
    assert not path.exists()


def test_what_a_part_measured_before_an_interruption_is_kept_apart(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    interrupts = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    add(folder, f"{WRITES}; {interrupts}", "cpus")
    short = "import sys, results; results.LOOK = 0.1; results.end_in_order(); "
    short += "results.machine = lambda: {'python': '3', 'packages': {'torch': '2'}}; "
    ended = subprocess.run(
        [sys.executable, "-c", f"{short}sys.exit(results.main())", "cpus"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 128 + signal.SIGTERM
    assert kept(folder, "cpus.partial.json") == {"x": 1}
    assert (folder / "results" / "cpus.json").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("name", ["added.py", "sweeps/added.yaml"])
def test_an_added_script_or_sweep_marks_a_commit_as_changed(tmp_path: Path, name: str) -> None:
    folder = checkout(tmp_path)
    for harmless in ("notes.txt", f"build/{name}"):
        (tmp_path / harmless).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / harmless).write_text("", encoding="utf-8")
    (tmp_path / "sweeps").mkdir()
    clean = commit_of(folder)
    assert len(clean) == 40
    (tmp_path / name).write_text("", encoding="utf-8")
    assert commit_of(folder) == f"{clean}-dirty"


def test_a_repository_around_the_checkout_is_not_its_commit(tmp_path: Path) -> None:
    checkout(tmp_path)
    carried = tmp_path / "carried" / "benchmarks"
    carried.mkdir(parents=True)
    assert commit_of(copy(carried)) == "None"
