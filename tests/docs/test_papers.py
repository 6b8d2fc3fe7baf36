"""The pages of the papers: every sweep and every sentence is on them, and what is wrong is told."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from docs.compare_quotes import compare, main
from docs.generate import papers, papers_page
from docs.generate.markdown import plain
from docs.generate.papers import Item, WrongPaperError, load_paper, paper_files
from docs.generate.papers_page import page, state
from docs.generate.results import all_results
from docs.generate.shipped import ROOT, load_shipped, sweep_files
from fope_lab.sweep.report_section import ClaimGroup

NAMES = [file.stem for file in paper_files()]
FILES = [f for f in sweep_files() if f.parent.name in (*NAMES, "mini")]


@functools.cache  # not at the import, which costs every process of the tests seconds
def pages() -> dict[str, str]:
    """The page of each paper."""
    return {name: page(name) for name in NAMES}


def named(file: Path) -> str:
    return str(file.relative_to(ROOT / "sweeps"))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_sweep_is_on_the_page_of_its_paper(file: Path) -> None:
    shown = [name for name, text in pages().items() if f"(../sweeps/{named(file)})" in text]
    paper = load_shipped(file).paper
    assert len(shown) == 1
    if file.parent.name != "mini":
        assert shown == [file.parent.name]
    elif paper is not None:
        assert shown == [paper.partition("/")[0]]


@pytest.mark.parametrize("file", FILES, ids=named)
def test_claims_say_what_they_stand_for_and_their_page_shows_it(file: Path) -> None:
    groups = load_shipped(file).report.claims
    (text,) = (text for text in pages().values() if f"(../sweeps/{named(file)})" in text)
    for group in groups:
        assert isinstance(group, ClaimGroup), f"{group}: which sentence, or why none?"
        assert (group.place is None) is (group.quote is None)
        assert (
            f"> “{plain(group.quote)}”" in text
            if group.quote
            else f"> {plain(group.note or '')}" in text
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_item_and_statement_is_on_the_page(name: str) -> None:
    paper = load_paper(papers.FOLDER / f"{name}.yaml")
    quotes = [statement.quote for statement in paper.statements]
    assert len(set(quotes)) == len(quotes)
    for item in paper.items:
        assert f"## {item.item}\n" in pages()[name]
        for text in filter(None, (item.shows, item.differs, item.lacks)):
            assert plain(text) in pages()[name]
    for statement in paper.statements:
        assert f"“{plain(statement.quote)}”" in pages()[name]
        assert plain(statement.here) in pages()[name]


PRINTED = {
    "fope": [f"Figure {n}" for n in (1, 2, 3, 4, 5, "6a", "6b", "6c", 7, 8)]
    + [f"Table {n}" for n in range(1, 7)],
    "resonance": [f"Figure {n}" for n in range(1, 5)] + ["Table 1", "Table 2"],
    "p_rope": [f"Figure {n}" for n in range(1, 16)] + [f"Table {n}" for n in range(1, 6)],
}


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_and_table_is_there(name: str) -> None:
    items = [item.item for item in load_paper(papers.FOLDER / f"{name}.yaml").items]
    assert [item for item in items if item.startswith(("Figure", "Table"))] == PRINTED[name]
    assert len(set(items)) == len(items)


def test_a_state_says_whether_it_was_run_and_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"item": "Figure 1", "place": "§1", "shows": "A curve."}
    figures = Item(**fields, sweeps=("p_rope/figures",))  # type: ignore[arg-type]
    assert state(figures) == "[run](../results.md#p-rope-figures)"
    (result,) = (one for one in all_results() if one.sweep == "sweeps/p_rope/figures.yaml")
    older = replace(result, report={**result.report, "stages": []})
    monkeypatch.setattr(papers_page, "all_results", lambda: [older])
    link = "[run](../results.md#p-rope-figures)"
    assert state(figures) == f"{link} with the settings of an older file"
    weights = state(Item(**fields, sweeps=("p_rope/table3",)))  # type: ignore[arg-type]
    assert weights == "ready for a GPU and the weights of google/gemma-7b"
    nothing = state(Item(**fields, lacks="A drawing."))  # type: ignore[arg-type]
    assert nothing == "not here"


WRONG = {
    "sweeps: [fope/figure99]": "items[0].sweeps[0]: there is no sweeps/fope/figure99.yaml",
    "sweeps: ['fope/table2#magnitud']": "sweeps/fope/table2.yaml has no stage magnitud",
    "analyses: [qk-magnitud]": "unknown analysis 'qk-magnitud'; did you mean 'qk-magnitude'?",
    "embeddings: [fopee]": "unknown embedding 'fopee'; did you mean",
    "differs: All.": "items[0]: Figure 1 is nowhere here, needs lacks, which says why",
    "lack: All.": "items[0].lack: unknown key 'lack'; did you mean 'lacks'?",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_file_is_told(tmp_path: Path, line: str) -> None:
    item = {"item": "Figure 1", "place": "§1", "shows": "A curve.", **yaml.safe_load(line)}
    file = tmp_path / "paper.yaml"
    file.write_text(yaml.safe_dump({"title": "T", "arxiv": "1", "items": [item]}))
    with pytest.raises(WrongPaperError) as error:
        load_paper(file)
    assert WRONG[line] in str(error.value)


def test_a_sentence_belongs_to_the_items_that_its_place_names() -> None:
    paper = load_paper(papers.FOLDER / "p_rope.yaml")
    items = {item.item: [g.place for _, g in paper.groups(item)] for item in paper.items}
    assert "§4, of Figure 3" in items["Figure 3"]
    assert "§4, of Figure 3" not in items["Figure 4"] + items["Figure 10"]
    assert "§4, of Figure 10 (c)" in items["Figure 10"]
    assert "§4, of Figure 10 (c)" not in items["Table 1"] + items["Figure 3"]


def test_quotations_are_compared_with_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quotes = [("a", "RoPE is ahead."), ("b", "RoPE is behind."), ("c", "RoPE [...] here.")]
    assert compare("fope", quotes, "As we see,\nRoPE is ahead. It is so only\nhere.") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "ok  fope  a: RoPE is ahead.",
        "NOT FOUND  fope  b: RoPE is behind.",
        "    is not in the text, but only up to: 'RoPE is'",
        "ok  fope  c: RoPE [...] here.",
        "fope: 3 quotations, 1 not found",
    ]


def test_the_exit_code_says_whether_all_were_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = load_paper(papers.FOLDER / "resonance.yaml")
    whole = tmp_path / "whole.txt"
    whole.write_text("\n".join(quote.replace("[...]", "and so on") for _, quote in paper.quotes()))
    assert main([f"resonance={whole}"]) == 0
    assert "NOT FOUND" not in capsys.readouterr().out
    half = tmp_path / "half.txt"
    half.write_text(whole.read_text()[:500])
    assert main([f"resonance={half}"]) == 1
    assert "NOT FOUND" in capsys.readouterr().out
    for argument in (f"resonanc={whole}", str(whole), f"resonance={tmp_path / 'none'}"):
        with pytest.raises(SystemExit) as error:
            main([argument])
        assert error.value.code == 2


def test_a_page_links_only_to_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers_page, "all_results", list)
    assert "results.md" not in page("resonance")
    assert "results.md" in pages()["resonance"]
