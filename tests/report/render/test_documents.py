"""The report as Markdown and LaTeX, read back; and the same numbers on the page and elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import BASE, finish, links_of, make_report, printed, report_of, write_plan

from fope_lab.report.compare.differences import meaning
from fope_lab.report.files import write_report
from fope_lab.report.render.documents import (
    PLAIN,
    label_of,
    latex_text,
    markdown_text,
    render_latex,
    render_markdown,
)
from fope_lab.report.render.json import report_numbers
from fope_lab.report.render.tables import build_tables, compared_texts, paper_table, report_tables
from fope_lab.store.root import Store

PAPER = {"paper": "fope/table2", "grid": {"pretrain.embedding": ["nope", "rope", "rope-a"]}}


def grids(text: str) -> list[list[list[str]]]:
    """Every table of a Markdown text: lines of cells."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells])
        elif found[-1]:
            found.append([])
    return [grid for grid in found if grid]


def test_every_entry_stands_in_its_row_and_column(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    text = render_markdown(report)
    assert f"Bold: {markdown_text(meaning(report.seed_test))}." in text
    assert "\\*" not in text
    by_header = {tuple(grid[0]): grid for grid in grids(text)}
    for table in build_tables(report):
        grid = by_header[tuple(table.header)]
        assert len(grid) == len(table.rows) + 2
        for row, line in zip(table.rows, grid[2:], strict=True):
            texts = [f"**{e.marked}**" if e.best else e.marked for e in row.entries]
            assert line == [*row.labels, row.seeds, *texts]


def test_every_stage_is_there_with_its_key_and_run(tmp_path: Path) -> None:
    plan, store = write_plan(tmp_path), Store(tmp_path / "store")
    finish(plan, store, fail={"perplexity[embedding=nope,seed=0]": "broken"})
    report = make_report(plan, store)
    text = render_markdown(replace(report, links=links_of(plan)))
    lines = grids(text)[-1][2:]
    assert lines == [
        [r.stage.label, r.state.status, r.stage.key, f"run-{r.stage.key}"] for r in report.stages
    ]
    assert "perplexity\\[embedding=nope,seed=0]: failed: broken" in text


def test_sections_come_in_order_and_only_where_there_is_something(tmp_path: Path) -> None:
    def sections(text: str) -> list[str]:
        return [line[3:] for line in text.splitlines() if line.startswith("## ")]

    claims = {"report": {"claims": ["perplexity@256: fope < rope"]}}
    assert sections(render_markdown(report_of(tmp_path))) == ["Tables", "Provenance", "Stages"]
    report = report_of(tmp_path / "more", changes={"paper": "fope/figure1", **claims})
    text = render_markdown(report)
    assert sections(text) == [
        "Claims",
        "Comparison with the paper",
        "Tables",
        "Provenance",
        "Stages",
    ]
    assert "perplexity@256: fope < rope" in text
    assert "The paper prints no numbers for it." in text
    assert report.paper is not None
    assert all(markdown_text(one) in text for one in report.paper.published.says)


def test_published_and_ours_stand_beside_each_other(tmp_path: Path) -> None:
    report = report_of(tmp_path, changes={**PAPER, "stages": with_lengths([64, 512, 1024])})
    text = render_markdown(report)
    grid = next(grid for grid in grids(text) if grid[0][:2] == ["row", "column"])
    assert report.paper is not None
    assert grid[0] == ["row", "column", "seeds", "published", "ours", "difference", "inside"]
    assert [line[:4] for line in grid[2:]] == [
        [one.row, one.column, "3", f"{one.published:.3f}"] for one in report.paper.numbers
    ]
    assert len(grid) == 2 + 3 * 3  # at 1, 8 and 16 times the trained length
    assert "- RoPE + QK_Norm: not part of this sweep" in text


def with_lengths(lengths: list[int]) -> dict[str, Any]:
    perplexity = {**BASE["stages"]["perplexity"], "lengths": lengths}
    return {"pretrain": BASE["stages"]["pretrain"], "perplexity": perplexity}


def test_the_terminal_and_the_page_show_the_same_numbers(tmp_path: Path) -> None:
    report = report_of(tmp_path, changes={**PAPER, "stages": with_lengths([64, 512])})
    text, page = printed(report, 200), write_report(report, tmp_path / "page").page.read_text()
    assert "arXiv 2412.17739, Table 2: 6 of 30 published numbers have a cell" in text
    assert '<section id="paper">' in page
    assert 'href="https://arxiv.org/abs/2412.17739"' in page
    assert report.paper is not None
    for one in report.paper.numbers:
        published, _, difference, _ = texts = compared_texts(one)
        row = re.compile(rf"{one.row} +{one.column} ")
        [line] = [line for line in text.splitlines() if row.match(line)]
        assert all(part in line for part in texts)
        assert f'<span class="published">{published}</span>' in page
        assert f'<span class="difference">{difference}' in page
    assert all(f"  {line}" in text for line in report.paper.absent)


@pytest.mark.parametrize(
    "text", ["a|b", "<script>", "*bold*", "[link](javascript:x)", "`code`", "back\\slash", "a\nb"]
)
def test_names_are_text(text: str) -> None:
    assert not re.search(r"(?<!\\)\|", markdown_text(text))
    assert re.sub(r"\\(.)", r"\1", markdown_text(text)) == " ".join(text.split())
    assert not re.search(r"(?<!\\)[<*`\[|]", markdown_text(text).replace("\\\\", ""))


def test_the_summary_of_a_run_has_differences_and_verdicts(tmp_path: Path) -> None:
    claims = ["perplexity@512: nope < rope", "perplexity@512: rope < nope"]
    sweep = {**PAPER, "stages": with_lengths([64, 512]), "report": {"claims": claims}}
    report = report_of(tmp_path, changes=sweep)
    numbers = report_numbers(report)
    assert report.paper is not None
    rope = report.paper.numbers[0]
    assert numbers["difference", "RoPE", "512"] == rope.difference
    verdicts = {path[0]: n for path, n in numbers.items() if path[0].startswith("claims_")}
    assert set(verdicts) == {
        f"claims_{word}" for word in ("holds", "fails", "undecided", "not_trained")
    }
    assert sum(verdicts.values()) == 2
    assert numbers["stages_done",] == len(report.stages)


def test_without_a_paper_and_claims_there_are_stages_only(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert set(report_numbers(report)) == {("stages_done",)}
    page = write_report(report, tmp_path / "page").page.read_text()
    assert 'id="paper"' not in page
    assert "Comparison with the paper" not in page


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


def test_every_entry_stands_in_its_place_in_latex(tmp_path: Path) -> None:
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
