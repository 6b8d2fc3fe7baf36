"""The commands that the README gives for the papers' sweeps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fope_lab.cli import main

ROOT = Path(__file__).parents[1]
SECTION = "## The papers' tables and figures"
README = (ROOT / "README.md").read_text(encoding="utf-8").partition(SECTION)[2]
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)[0].splitlines()
]


def test_the_section_shows_what_to_do() -> None:
    assert {command[:2][-1] for command in COMMANDS} == {"plan", "run", "report"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_works(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan really; of a run and its report, which take hours, that the files are right."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FOPE_LAB_STORE", str(tmp_path))
    program, name, *rest = command
    assert program == "fope-lab"
    if name != "plan":
        name, rest = "validate", [one for one in rest if not one.startswith("-")]
    assert main([name, *rest]) == 0, capsys.readouterr().err
    assert "stages" in capsys.readouterr().out
