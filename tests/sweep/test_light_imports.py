"""Reading and planning a sweep imports nothing heavy, so that it answers at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sweep_files import BASE, write

HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "pandas", "matplotlib", "scipy")


def heavy_modules(code: str) -> list[str]:
    """Which of HEAVY a fresh process has imported after running `code`."""
    listing = f"import sys; print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True
    )
    return list(eval(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import fope_lab.sweep",
        "import fope_lab.sweep.schema as s; s.sweep_json_schema()",
        "from fope_lab.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from fope_lab.cli import main; assert main(['validate', PATH]) == 0",
        "from fope_lab.cli import main; assert main(['plan', PATH, '--store', 'none']) == 0",
        "from fope_lab.cli import main; assert main(['plan', PATH, '--json']) == 0",
    ],
)
def test_nothing_heavy_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "sweep.yaml", BASE)
    assert heavy_modules(code.replace("PATH", repr(str(path)))) == []


def test_the_check_sees_what_is_imported() -> None:
    assert heavy_modules("import torch") == ["torch"]
