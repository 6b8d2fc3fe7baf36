"""The report's tables as LaTeX, read back by what LaTeX would make of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import report_of

from fope_lab.report.render.documents import PLAIN, label_of, latex_text, render_latex
from fope_lab.report.render.tables import paper_table, report_tables

MEANING = {command: mark for mark, command in PLAIN.items()} | {"{}": ""}
COMMAND = re.compile("|".join(map(re.escape, sorted(MEANING, key=len, reverse=True))))


def read(text: str) -> str:
    """What LaTeX prints for escaped text."""
    return COMMAND.sub(lambda found: MEANING[found[0]], text)


def tabulars(text: str) -> list[tuple[str, list[list[str]]]]:
    """The columns of every table and its lines of cells; \\textbf{…} becomes **…**."""
    found = re.findall(r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", text, flags=re.DOTALL)
    tables = []
    for columns, body in found:
        lines = [line.strip() for line in body.splitlines() if line.strip().endswith(r"\\")]
        cells = [re.split(r"(?<!\\) ?& ?", line.removesuffix(r"\\").strip()) for line in lines]
        bold = [[re.sub(r"^\\textbf{(.*)}$", r"**\1**", cell) for cell in row] for row in cells]
        tables.append((columns, [list(map(read, row)) for row in bold]))
    return tables


def test_every_entry_stands_in_its_row_and_column(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    tables, written = report_tables(report), tabulars(render_latex(report))
    assert len(tables) == len(written) > 1
    for table, (columns, lines) in zip(tables, written, strict=True):
        assert len(columns) == len(table.header)
        assert lines[0] == table.header
        for row, line in zip(table.rows, lines[1:], strict=True):
            texts = [f"**{e.marked}**" if e.best else e.marked for e in row.entries]
            assert line == [*row.labels, row.seeds, *texts]


def test_panels_are_divided_by_a_rule(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": ["rope", "nope"], "pretrain.model.num_layers": [1, 2]}
    report = report_of(tmp_path, changes={"grid": grid, "seeds": [0]})
    divided = sum(row.starts_panel for table in report_tables(report) for row in table.rows)
    assert divided > 0
    tables = len(report_tables(report))
    assert render_latex(report).count(r"\midrule") == divided + tables


def test_the_comparison_with_the_paper_is_the_last_table(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": ["nope", "rope", "rope-a"]}
    report = report_of(tmp_path, changes={"paper": "fope/table2", "grid": grid})
    assert report.paper is not None
    table = paper_table(report.paper)
    assert tabulars(render_latex(report))[-1][1][0] == table.header


def test_captions_and_labels_are_those_of_the_tables(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    text = render_latex(report)
    captions = [read(caption) for caption in re.findall(r"\\caption{(.*)}", text)]
    for table, caption in zip(report_tables(report), captions, strict=True):
        assert caption.startswith(f"{table.title}. ")
        assert "* best" not in caption
    labels = re.findall(r"\\label{(.*)}", text)
    assert len(set(labels)) == len(labels)
    assert text.startswith("% ")
    assert "abc1234" in text.splitlines()[1]  # the commit


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40))
def test_any_text_is_printed_as_it_is(text: str) -> None:
    latex = latex_text(text)
    assert read(latex) == " ".join(text.split())
    without = re.sub(r"\\[#$%&_{}]", "", COMMAND.sub("", latex))
    assert not re.search(r"[#$%&_{}~^\\<>|]", without)


@pytest.mark.parametrize("text", ["--", "---", "–-", "''", "``", ",,", "?`", "!`"])
def test_no_ligature_takes_the_place_of_two_marks(text: str) -> None:
    parts = latex_text(text).split("{}")
    assert [read(part) for part in parts] == list(text)


@given(st.text(max_size=60))
def test_a_label_is_a_file_name_too(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", label_of(text))


def test_claims_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    claims = ["passkey@128: fope > rope", "perplexity@64: fope ~ rope within 10%"]
    report = report_of(tmp_path, changes={"report": {"tables": [], "claims": claims}})
    ((columns, lines),) = tabulars(render_latex(report))
    assert columns == "lllrr"
    for verdict, line in zip(report.verdicts, lines[1:], strict=True):
        assert line[0] == f"\\texttt{{{verdict.text}}}"
        assert line[2] == verdict.verdict
        assert line[4] == "3"


def test_claims_stand_below_their_sentence_in_latex(tmp_path: Path) -> None:
    group = {"quote": "A & B, 50 %", "place": "§5", "claims": ["passkey@128: fope > rope"]}
    claims = ["perplexity@64: fope ~ rope within 10%", group]
    text = render_latex(report_of(tmp_path, changes={"report": {"tables": [], "claims": claims}}))
    across = r"\addlinespace \multicolumn{5}{p{\linewidth}}{“A \& B, 50 \%” (\S{}5)} \\"
    assert text.count(across) == 1
    places = [text.index(part) for part in ("perplexity@64", across, "passkey@128")]
    assert places == sorted(places)
