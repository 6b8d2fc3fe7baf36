"""`fope-lab new` writes a sweep for a text that is right as it is, and overwrites nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fope_lab.cli import main
from fope_lab.data.corpora.files import Files
from fope_lab.sweep import load_sweep

PARAGRAPHS = "\n\n".join(f"Paragraph {i} of a text that has many of them." for i in range(400))


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two books and a folder for sweeps."""
    for name in ("one", "two"):
        (tmp_path / "books").mkdir(exist_ok=True)
        (tmp_path / "books" / f"{name}.txt").write_text(f"The book {name}.\n\n{PARAGRAPHS}")
    (tmp_path / "sweeps").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", [["books/*.txt"], ["books/one.txt", "books/two.txt"]])
def test_a_sweep_of_the_users_text(
    text: list[str], books: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "sweeps/mine.yaml", "--text", *text]) == 0
    said = "sweeps/mine.yaml: mine, 10 stages; run it with `fope-lab run sweeps/mine.yaml`\n"
    assert capsys.readouterr().out == said
    path = books / "sweeps" / "mine.yaml"
    assert path.read_text().count("../books/*.txt") == 2
    sweep = load_sweep(path)
    assert {stage.embedding for stage in sweep.stages if stage.kind == "pretrain"} == {
        "nope", "alibi", "rope(base=129)", "fope(base=129)"
    }  # fmt: skip
    [corpus] = {local.record.corpus["files"] for local in sweep.local_corpora}
    assert corpus == "../books/*.txt"
    longest = max(max(s.config["lengths"]) for s in sweep.stages if s.kind == "perplexity")
    files = Files(files=("books/*.txt",)).resolved(books)
    assert sum(map(len, files.documents("validation"))) > longest == 512
    assert main(["plan", str(path), "--store", str(books / "store")]) == 0
    assert not (books / "store").exists()


def test_files_of_a_folder_that_has_others_are_named_one_by_one(books: Path) -> None:
    (books / "books" / "three.txt").write_text("Another.")
    assert main(["new", "mine.yaml", "--text", "books/one.txt", "books/two.txt"]) == 0
    assert '["books/one.txt", "books/two.txt"]' in (books / "mine.yaml").read_text()
    load_sweep(books / "mine.yaml")


def test_a_short_text_is_evaluated_at_shorter_lengths(books: Path) -> None:
    (books / "short.txt").write_text(PARAGRAPHS[:4000])
    assert main(["new", "mine.yaml", "--text", str(books / "short.txt")]) == 0
    [claim] = load_sweep(books / "mine.yaml").report.claims
    [longest] = re.findall(r"@(\d+)", str(claim))
    assert 64 <= int(longest) < 512


def test_without_a_text_it_is_the_documentation_of_python(books: Path) -> None:
    assert main(["new", "docs.yaml"]) == 0
    text = (books / "docs.yaml").read_text()
    assert text.count("corpus: python-docs") == 2
    assert load_sweep(books / "docs.yaml").local_corpora == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["old.yaml"], "NAME: old.yaml is already there; choose another name"),
        (["mine.yml"], "NAME: found 'mine.yml', needs a name that ends in .yaml"),
        ([".yaml"], "NAME: found '.yaml', needs a name that ends in .yaml, such as books.yaml"),
        (["gone/mine.yaml"], "NAME: gone is not a folder"),
        (["a b.yaml"], "name: found 'a b', needs up to 100 letters"),
        (["mine.yaml", "--text", "none/*.txt"], "--text: no file matches 'none/*.txt' in"),
        (
            ["mine.yaml", "--text", "."],
            "--text: '.' is a folder, needs its files, such as './*.txt'",
        ),
        (["mine.yaml", "--text", "few.txt"], "--text: the text is too short: "),
        (["mine.yaml", "--text", "binary.txt"], "binary.txt is not UTF-8 text"),
    ],
)
def test_what_can_not_be_written_is_one_error(
    words: list[str], message: str, books: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (books / "old.yaml").write_text("mine")
    (books / "few.txt").write_text("A few words.\n\nAnd some more.")
    (books / "binary.txt").write_bytes(b"\xff\xfe\x00\x80")
    before = sorted(books.rglob("*"))
    assert main(["new", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(books.rglob("*")) == before
    assert (books / "old.yaml").read_text() == "mine"
