"""The script for a machine with a GPU: what it needs, and that each part fails alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import JSON, PARTS, Part, run_part, table, write

NEEDLESS = ("ray", "mlflow", "datasets")


def test_no_part_needs_ray_or_mlflow_or_datasets() -> None:
    scripts = {name for part in PARTS.values() for name in part.command if name.endswith(".py")}
    benchmarks = sorted(name for name in scripts if name.startswith("benchmarks/"))
    assert len(benchmarks) == 5
    code = f"""
import runpy, sys
for name in {NEEDLESS}:
    sys.modules[name] = None  # importing it is an ImportError
for script in {benchmarks}:
    runpy.run_path(script, run_name="imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=gpu.ROOT)


def test_every_tested_file_has_tests_that_need_a_gpu() -> None:
    for name in ("tests", "biases"):
        [path] = (word for word in PARTS[name].command if word.endswith(".py"))
        assert "cuda.is_available()" in (gpu.ROOT / path).read_text(encoding="utf-8")


def test_the_parts_fit_into_eight_minutes() -> None:
    assert sum(part.seconds for part in PARTS.values()) <= 8 * 60
    assert all(part.full != part.toy or not part.full for part in PARTS.values())


def python(code: str, *words: str, seconds: int = 60) -> Part:
    return Part("something", ("-c", code, *words), seconds)


def is_dead(process: str) -> bool:
    """Whether a process is gone, or waits for nothing but its parent to notice."""
    try:
        text = Path("/proc", process, "stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


WRITES = "import sys; open(sys.argv[1], 'w').write('{\"x\": 1}'); print('measured')"


def test_a_part_fails_or_hangs_alone(tmp_path: Path) -> None:
    hangs = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    parts = {
        "good": python(WRITES, JSON),
        "bad": python("raise SystemExit('no such kernel')"),
        "slow": python(hangs, seconds=3),
        "after": python("print('still here')"),
    }
    results = {}
    for name, part in parts.items():
        results[name] = run_part(part, toy=False, figures=tmp_path / f"{name}.json")
    assert {name: one["exit"] for name, one in results.items()} == {
        "good": 0,
        "bad": 1,
        "slow": None,
        "after": 0,
    }
    assert results["good"]["figures"] == {"x": 1}
    assert results["bad"]["output"] == ["no such kernel"]
    assert is_dead(results["slow"]["output"][0])
    write(tmp_path, {"parts": results})
    assert json.loads((tmp_path / "gpu.json").read_text())["parts"] == results
    lines = (tmp_path / "gpu.txt").read_text().splitlines()
    assert [line.split()[1] for line in lines[1:5]] == ["ok", "exit", "too", "ok"]
    assert "still here" in table(results)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "out")])
    assert gpu.main() == 2
    assert "there is no CUDA device; --toy runs the same parts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_toy_run_leaves_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PARTS", {"a b": python(WRITES, JSON), "c": python("raise OSError")})
    words = ["gpu.py", "--toy", "--parts", "a b", "c", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert gpu.main() == 1
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert (found["toy"], found["gpu"] is None) == (True, not torch.cuda.is_available())
    assert found["packages"]["torch"] == torch.__version__
    assert found["parts"]["a b"]["figures"] == {"x": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.json", "gpu.txt"]
