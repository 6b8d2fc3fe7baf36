"""What the README shows works: its sweep, its commands and its make targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fope_lab.cli import main
from fope_lab.sweep import load_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_sweep_is_right(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("A novel.\n\n" * 500)
    (tmp_path / "sweeps").mkdir()
    sweep = tmp_path / "sweeps" / "books.yaml"
    sweep.write_text(text)
    stages = load_sweep(sweep).stages
    assert {stage.embedding for stage in stages if stage.kind == "pretrain"} == {
        "nope", "alibi", "rope(base=2344)", "fope(base=2344)"
    }  # fmt: skip


def test_every_command_is_there_and_every_command_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = set(re.findall(r"(?:^|`)fope-lab ([a-z]+)", README, flags=re.MULTILINE))
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = set(re.findall(r"^    ([a-z]+) ", capsys.readouterr().out, flags=re.MULTILINE))
    assert told == listed


def test_every_make_target_and_file_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path
