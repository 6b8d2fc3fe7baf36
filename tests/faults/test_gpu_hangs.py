"""The script for a machine with a GPU: each of its parts fails or hangs alone, and ends with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import JSON, Part, run_part, table, write

pytestmark = pytest.mark.faults


def python(code: str, *words: str, seconds: int = 60) -> Part:
    return Part("something", ("-c", code, *words), seconds)


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
