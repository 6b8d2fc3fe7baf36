"""`{files: GLOB}` stands for a corpus wherever a source does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.data.problems import DataError
from fope_lab.data.recipe import parse_data


def test_files_are_a_source_alone_and_in_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    long = parse_data({"corpus": {"files": "*.txt"}, "length": 8}, tmp_path)
    assert parse_data({"files": "*.txt", "length": 8}, tmp_path) == long
    mixed = parse_data({"mix": [{"files": "*.txt", "weight": 2}], "length": 8}, tmp_path)
    assert (mixed.mix[0].corpus, mixed.mix[0].weight) == (long.mix[0].corpus, 2.0)


def test_what_is_wrong_is_said_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^files: no file matches"):
        parse_data({"files": "none", "length": 8}, tmp_path)
    with pytest.raises(DataError, match=r"^mix\[0\]: found fils, needs exactly one"):
        parse_data({"mix": [{"fils": "*.txt"}], "length": 8}, tmp_path)
