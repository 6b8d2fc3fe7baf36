"""Shipped sweeps are found by name, after the files of the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_files import BASE, write

from fope_lab.cli import main
from fope_lab.config.problems import SweepError
from fope_lab.config.shipped import shipped_folder, shipped_names, sweep_path
from fope_lab.sweep import load_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps"


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("quickstart", "quickstart.yaml"),
        ("quickstart.yaml", "quickstart.yaml"),
        ("sweeps/quickstart.yaml", "quickstart.yaml"),
        ("mini/fope-table2", "mini/fope-table2.yaml"),
        ("fope", "fope"),
        ("sweeps/mini", "mini"),
    ],
)
def test_a_name_means_the_shipped_sweep(word: str, path: str) -> None:
    assert sweep_path(word) == SWEEPS / path


def test_every_shipped_file_and_folder_has_a_name() -> None:
    files = {path.relative_to(SWEEPS).with_suffix("") for path in SWEEPS.rglob("*.yaml")}
    folders = {path.relative_to(SWEEPS) for path in SWEEPS.iterdir() if path.is_dir()}
    assert shipped_names() == sorted(path.as_posix() for path in files | folders)
    assert shipped_folder() == SWEEPS


def test_a_file_here_comes_first(empty: Path) -> None:
    write(empty / "quickstart.yaml", {**BASE, "name": "mine"})
    assert load_sweep("quickstart").name == "mine"
    assert load_sweep("quickstart.yaml").name == "mine"
    (empty / "fope").mkdir()
    assert sweep_path("fope") == Path("fope")


def test_python_and_the_commands_find_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_sweep("quickstart").path == SWEEPS / "quickstart.yaml"
    assert main(["validate", "quickstart", "p_rope"]) == 0
    assert main(["status", "quickstart", "--store", "none"]) in (0, 2)
    assert "p_rope/table2.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("quikstart", "quickstart"),
        ("mini/fope-tabel2", "mini/fope-table2"),
        ("figure6b", "fope/figure6b"),
        ("sweeps/quikstart.yaml", "quickstart"),
        ("mien.yaml", "mine.yaml"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(empty: Path, word: str, nearest: str) -> None:
    write(empty / "mine.yaml", BASE)
    with pytest.raises(SweepError, match=f"did you mean '{nearest}'") as error:
        sweep_path(word)
    assert ("(allowed: " in str(error.value)) == ("." not in word)


def test_every_wrong_word_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "quikstart", "nothing-like-it"]) == 2
    printed = capsys.readouterr().err
    assert "quikstart: is not there" in printed
    assert "nothing-like-it: is not there" in printed
