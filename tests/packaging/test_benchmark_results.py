"""benchmarks/results.py: the page shows what was measured, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def measure(folder: Path, code: str, *parts: str) -> subprocess.CompletedProcess[str]:
    """Measure parts whose scripts run this code, after `figures`, the path of their JSON."""
    for part in parts:
        start = "import json, sys; from pathlib import Path; figures = Path(sys.argv[-1])"
        (folder / f"{part}.py").write_text(f"{start}\n{code}\n", encoding="utf-8")
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-qm", "a part")
    short = "import sys, results; results.LOOK = 0.1; sys.exit(results.main())"
    return subprocess.run(
        [sys.executable, "-c", short, *parts],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def kept(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results" / name).read_text(encoding="utf-8"))
    return content


def commit_of(folder: Path) -> str:
    """The commit that is kept with a figure."""
    command = [sys.executable, "-c", "import gpu; print(gpu.machine()['commit'])"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.strip()


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


def test_what_a_gpu_measured_is_taken_in(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    given = tmp_path / "gpu.json"
    part = {
        "shows": "speed of something",
        "command": ["benchmarks/training.py", "--json", "FILE"],
        "exit": None,
        "seconds": 90.2,
        "output": ["ours  123 tokens/s"],
        "figures": None,
    }
    about = {
        "gpu": "NVIDIA H100 80GB HBM3",
        "toy": False,
        "python": "3.12.1",
        "packages": {"torch": "2.11.0", "transformers": "5.1.0"},
        "date": "2026-01-02",
        "commit": "0123456789abcdef",
        "seconds": 400.0,
        "parts": {"training at 60m": part},
    }
    given.write_text(json.dumps(about))
    assert results(folder, "--gpu", str(given)).returncode == 0
    text = (folder / "RESULTS.md").read_text(encoding="utf-8")
    assert "commit 0123456, in\n400 s. NVIDIA H100 80GB HBM3; Python 3.12.1" in text
    assert "### Speed of something" in text
    assert "`python benchmarks/training.py --json FILE`, past its limit, 90 s." in text
    assert "ours  123 tokens/s" in text
    assert results(folder, "--check").returncode == 0


def test_a_toy_run_is_not_taken_in(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    given = tmp_path / "gpu.json"
    given.write_text(json.dumps({"gpu": None, "toy": True, "parts": {}}))
    found = results(folder, "--gpu", str(given))
    assert found.returncode == 1
    assert f"{given}: found a toy run, needs one on a GPU" in found.stderr
    assert not (folder / "results" / "gpu.json").exists()


def test_the_load_is_that_of_now() -> None:
    code = "import results; results.LOOK = 0.5; print(results.busy_cores())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "benchmarks",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 <= float(found.stdout) <= (os.cpu_count() or 1) + 0.01


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
    (root / ".gitignore").write_text("build/\n__pycache__/\n", encoding="utf-8")
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
    found = measure(folder, "figures.write_text(json.dumps({'x': 1}))", "cpus", "scales")
    assert found.returncode == 0, found.stderr
    clean = commit_of(folder)
    assert len(clean) == 40
    for name in ("cpus.json", "scales.json"):
        assert (kept(folder, name)["commit"], kept(folder, name)["figures"]) == (clean, {"x": 1})


CHANGES = "Path('benchmarks/gpu.py').open('a').write('# changed')"
COMMITS = """
import subprocess
who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
subprocess.run(["git", *who, "commit", "--allow-empty", "-qm", "b"], check=True)
"""


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
