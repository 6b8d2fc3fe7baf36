"""YAML read as a sweep file needs it: numbers, lines, and what can't be read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sweep_files import told, write

from fope_lab.config.problems import SweepError
from fope_lab.config.yaml_document import Document


def value(folder: Path, content: str | bytes) -> Any:
    return Document(write(folder / "file.yaml", content)).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6e-4", 6e-4),
        ("10e9", 10_000_000_000),
        ("1.5e3", 1500),
        ("1e22", 1e22),  # no 64-bit integer
        ("200_000", 200_000),
        ("-3", -3),
        ("+4", 4),
        ("1.0", 1.0),
        (".5", 0.5),
        ("no", "no"),
        ("on", "on"),
        ("0o17", "0o17"),
        ("1_", "1_"),
        ("12:30:45", "12:30:45"),
        ("2024-01-31", "2024-01-31"),
        ("'5'", "5"),
        ("true", True),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
        ("-.inf", -math.inf),
    ],
)
def test_scalars_are_yaml_1_2(tmp_path: Path, text: str, expected: Any) -> None:
    found = value(tmp_path, f"a: {text}\n")["a"]
    assert found == expected
    assert type(found) is type(expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 512)  # a float rounds it up to 2⁶³
def test_integers_are_exact(tmp_path_factory: pytest.TempPathFactory, number: int) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert value(folder, f"a: {number}") == value(folder, f"a: {number}e0") == {"a": number}


def test_lines_of_fields(tmp_path: Path) -> None:
    text = "a:\n  b: 1\n  c:\n    - x\n    - {d: 5,\n       e: 6}\n"
    document = Document(write(tmp_path / "file.yaml", text))
    assert document.line(()) == 1
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "c", 0)) == 4
    assert document.line(("a", "c", 1, "e")) == 6
    assert document.line(("a", "c", 1, "missing")) == 5, "the nearest field around it"
    assert document.line(("other",)) == 1


def test_aliases_and_merge_keys(tmp_path: Path) -> None:
    text = "a: &a {x: 1, y: 2}\nb: *a\nc:\n  <<: *a\n  y: 3\nd: {<<: [{x: 5}, *a], z: 4}\n"
    assert value(tmp_path, text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 3},
        "d": {"x": 5, "y": 2, "z": 4},
    }


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert value(tmp_path, b"\xef\xbb\xbfa: 1") == {"a": 1}


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, levels):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\tname: x\n", "1 is not YAML: while scanning for the next token, found a tab where only"),
        ("name: x: y\n", "1 is not YAML: mapping values are not allowed here"),
        ("name: x\nb: [1, 2\n", "3 is not YAML: while parsing a flow sequence, expected ',' or"),
        ("name: *foo\n", "1 is not YAML: found undefined alias 'foo'"),
        ("a: 1\n---\nb: 2\n", "2 is not YAML: expected a single document in the stream, but found"),
        ("a: 1\nb: \x00\n", "2 is not YAML: the character #x0000 is not allowed"),
        (b"a: 1\nb: \xff\n", "2 is not UTF-8 text: found the byte 0xff"),
        ("name: x".encode("utf-16"), "1 is not UTF-8 text: found the byte 0x"),
        ('a: "\\0"\n', "1 a: found the character #x0000, which can't be printed"),
        ('a: "\\ud800"\n', "1 a: found the character #xd800, which can't be printed"),
        ("a: !!set {b, c}\n", "1 a: found the tag !!set; tags are not read"),
        ("a: !!python/object:os.system x\n", "1 a: found the tag !!python/object:os.system; tags"),
        ("a: !!bool 3\n", "1 a: found '3', tagged as bool"),
        ("? [a]\n: 1\n", "1 found a key that is a list or a mapping, not a word"),
        ("a: &a [*a]\n", "1 a[0][0]: is nested too deeply, or an alias that holds itself"),
        ("a: 1\nb: " + "[" * 2000, "2 is nested too deeply"),
        (bomb(9), "- expands, with its aliases, to over 100,000 values"),
        ("a:\n  b: {<<: 3}\n", "2 a.b.<<: merges what is no mapping"),
        (f"a: {'9' * 6000}\n", f"1 a: found {'9' * 30}, a number too large to compute with"),
        ("a: 9223372036854775808\n", "1 a: found 9223372036854775808, a number too large to comp"),
        ("a: 1e99999999999\n", "1 a: found 1e99999999999, a number too large to compute with"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, content: str | bytes, expected: str) -> None:
    [found] = told(tmp_path, content)
    assert found.startswith(expected)


def test_keys_given_twice(tmp_path: Path) -> None:
    text = "name: x\nname: y\nstages:\n  p: {kind: pretrain,\n    kind: extend, nam: 1}\n"
    found = told(tmp_path, text)
    assert "2 name: the key 'name' is given twice (first in line 1)" in found
    assert "5 stages.p.kind: the key 'kind' is given twice (first in line 4)" in found
    assert any(line.startswith("5 stages.p.nam: unknown key") for line in found), "all at once"


def test_a_file_that_is_not_there_names_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "figure1.yaml", "a: 1")
    with pytest.raises(SweepError, match=r"figure2\.yaml: is not there; did you mean 'figure1\.y"):
        Document(tmp_path / "figure2.yaml")
    with pytest.raises(SweepError, match=r"is not there$"):
        Document(tmp_path / "other" / "figure2.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="is a folder; give a sweep file"):
        Document(tmp_path)


def test_unreadable_paths(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    with pytest.raises(SweepError, match="can't be read: Too many levels of symbolic links"):
        Document(loop)
    with pytest.raises(SweepError, match="can't be read: "):
        Document(tmp_path / "a\0b.yaml")
    with pytest.raises(SweepError, match="can't be read: "):
        Document(tmp_path / ("a" * 5000))


def test_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    write(tmp_path / "large.yaml", b"[" * 2_300_000)
    with pytest.raises(
        SweepError, match=r"too large: found 2\.3 MB; a sweep file has at most 1 MB"
    ):
        Document(tmp_path / "large.yaml")
