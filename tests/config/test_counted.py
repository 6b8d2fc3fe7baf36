"""Numbers of things are in the singular where there is a single thing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.cli import main
from fope_lab.config.problems import counted


def test_numbers_of_things() -> None:
    assert [counted(n) for n in (0, 1, 1200)] == ["0 stages", "1 stage", "1,200 stages"]
    assert counted(1, "result") == "1 result"


def test_a_plan_of_a_single_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(
        "name: one\nstages: {figure: {kind: analysis, analysis: constructions}}\n"
    )
    assert main(["plan", "one.yaml", "--store", "none"]) == 0
    assert "one: 1 stage: 1 run; to do: " in capsys.readouterr().out
