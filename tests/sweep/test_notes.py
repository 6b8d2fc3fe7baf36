"""Two sweep files with one name are told, as long as there are two."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import PRETRAIN_LINE, write

from fope_lab.cli import main

SWEEP = f"name: shared\nstages:\n  pretrain: {PRETRAIN_LINE}\n"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A sweep file whose report is in the store."""
    path = write(tmp_path / "one.yaml", SWEEP)
    (tmp_path / "store" / "reports" / "another").mkdir(parents=True)
    assert command("report", path) == 0
    return path


@pytest.fixture
def two(one: Path) -> Path:
    """Another sweep of that name."""
    return write(one.with_name("two.yaml"), SWEEP.replace("1e-3", "2e-3"))


def command(name: str, path: Path) -> int:
    return main([name, str(path), "--store", str(path.parent / "store")])


def notes(name: str, path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert command(name, path) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("two sweep files")]


@pytest.mark.parametrize("name", ["plan", "status", "report"])
def test_both_paths_are_told(
    one: Path, two: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notes(name, one, capsys) == []
    assert notes(name, two, capsys) == [
        f"two sweep files have the name 'shared': {two} and {one}. They share a report and an"
        " MLflow experiment; give one of them another name"
    ]


def test_a_file_that_was_moved_or_changed_its_name_is_not_told(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one.write_text(SWEEP.replace("shared", "another"))
    assert notes("plan", two, capsys) == []
    one.write_text("name: [")
    assert notes("plan", two, capsys) == []
    one.rename(two)
    two.write_text(SWEEP)
    assert notes("plan", two, capsys) == []


def test_equal_files_and_copies_in_the_store_are_not_told(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = write(one.with_name("same.yaml"), SWEEP)
    assert notes("plan", same, capsys) == []
    submitted = write(one.parent / "store" / "submitted" / "s.yaml", two.read_text())
    assert main(["plan", str(submitted), "--store", str(one.parent / "store")]) == 0
    assert "two sweep files" not in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"path": 3}'])
def test_a_damaged_note_of_the_file_is_none(
    one: Path, two: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (one.parent / "store" / "reports" / "shared" / "sweep.json").write_text(damage)
    assert command("plan", two) == 0


def test_files_of_one_name_at_once_are_an_error(
    one: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("validate", "plan", "run"):
        assert main([name, str(one), str(two)]) == 2
        assert f"sweep name 'shared' is already used in {one}" in capsys.readouterr().err
