"""What counts as a change of the code that made a stage."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.embeddings import embedding_names
from fope_lab.embeddings.spec import named, parts_of
from fope_lab.store import source
from fope_lab.store.source import SourceFile, changed_files, digest_of_code, source_of

Changed = Callable[[Mapping[str, SourceFile]], list[str]]

CODE = '''
"""A module."""
from a import b


class Maker:
    """Its docstring."""

    size: int = 3

    def make(self, x: int) -> float:
        """Makes."""
        if x < 0:
            raise ValueError(f"found {x}")
        return b(x) * 7.5
'''


@pytest.fixture
def changed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changed:
    """What is changed of recorded files where a copy of the code stands for today's."""
    for room in ("fope_lab", "trainers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source.ROOT / room, tmp_path / room, ignore=ignore)

    def changed(recorded: Mapping[str, SourceFile]) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(source, "ROOT", tmp_path)
            return changed_files(recorded)

    return changed


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Makes."""', '"""Makes something else."""', True),
        ("from a import b", "from elsewhere.a import b", True),
        ("size: int = 3", "size: Annotated[int, Doc('The size.')] = 3", True),
        ("x: int) -> float", "x: float) -> Any", True),
        ('f"found {x}"', 'f"found {x}, needs 0 or more"', True),
        ("    return b(x) * 7.5", "    # why\n        return (b(x) * 7.5)", True),
        ("7.5", "7.25", False),
        ("size: int = 3", "size: int = 4", False),
        ("x < 0", "x <= 0", False),
        ("b(x) * 7.5", "b(x) + 7.5", False),
        ("return b(x)", "return -b(x)", False),
    ],
)
def test_what_changes_no_number_is_no_change(old: str, new: str, same: bool) -> None:
    assert old in CODE
    assert (digest_of_code(CODE) == digest_of_code(CODE.replace(old, new))) is same


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_any_other_constant_is_a_change(first: float, second: float) -> None:
    codes = [digest_of_code(f"def f(x):\n    return x * {value!r}") for value in (first, second)]
    assert (codes[0] == codes[1]) is (repr(first) == repr(second))


def _numbers(node: ast.AST) -> Iterator[ast.Constant]:
    """The numbers that a class computes with, those among its options' defaults included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and type(child.value) in (int, float):
            yield child
        elif isinstance(child, ast.AnnAssign):
            yield from _numbers(ast.Expr(child.value or ast.Pass()))
        elif not isinstance(child, ast.Raise | ast.arguments):
            yield from _numbers(child)


def _changed_texts(path: Path) -> list[str]:
    """The file's text with one number changed, for each number that decides a result."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    texts = []
    for number in _numbers(ast.parse(text)):
        row = number.lineno - 1
        line = lines[row].encode()
        value = f"({number.value!r} * 7 + 1)".encode()
        line = line[: number.col_offset] + value + line[number.end_col_offset :]
        texts.append("".join([*lines[:row], line.decode(), *lines[row + 1 :]]))
    return texts


@pytest.mark.parametrize("name", embedding_names())
def test_a_constant_of_any_embeddings_formula_is_noticed(
    name: str, tmp_path: Path, changed_in: Changed
) -> None:
    parts = [part.kind for part in parts_of(named(name).composition)]
    recorded = source_of(["trainers.stage", *(part.__module__ for part in parts)])
    assert changed_in(recorded) == []
    for part in parts:
        path = Path(*part.__module__.split(".")).with_suffix(".py")
        before = (tmp_path / path).read_text()
        changed = _changed_texts(tmp_path / path)
        assert changed or part.__name__ in ("Nope", "Sink"), "its formula has no number"
        for text in changed[:1] + changed[-1:]:
            (tmp_path / path).write_text(text)
            assert changed_in(recorded) == [str(path)]
        (tmp_path / path).write_text(before)
        assert changed_in(recorded) == []


def test_an_embedding_does_not_depend_on_the_others() -> None:
    files = source_of(["trainers.stage", "trainers.models", "fope_lab.embeddings.alibi"])
    assert "fope_lab/embeddings/alibi.py" in files
    assert "fope_lab/model/attention.py" in files
    assert not {"fope_lab/embeddings/fire.py", "fope_lab/embeddings/presets.py"} & files.keys()
    assert not [path for path in files if path.startswith(("fope_lab/report", "fope_lab/sweep"))]


def test_moving_or_renaming_a_file_is_no_change(tmp_path: Path, changed_in: Changed) -> None:
    recorded = source_of(["fope_lab.embeddings.alibi"])
    folder = tmp_path / "fope_lab/embeddings"
    (folder / "alibi.py").rename(folder / "linear_bias.py")
    assert changed_in(recorded) == []
    (folder / "linear_bias.py").unlink()
    assert changed_in(recorded) == ["fope_lab/embeddings/alibi.py"]


def test_a_file_that_can_not_be_parsed_is_a_change(tmp_path: Path, changed_in: Changed) -> None:
    recorded = source_of(["fope_lab.embeddings.alibi"])
    (tmp_path / "fope_lab/embeddings/alibi.py").write_text("class")
    assert changed_in(recorded) == ["fope_lab/embeddings/alibi.py"]
