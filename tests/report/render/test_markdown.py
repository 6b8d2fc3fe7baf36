"""The report as Markdown, read back; and the same numbers on the page, in a terminal, in MLflow."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, finish, links_of, make_report, printed, report_of, write_plan

from fope_lab.report.compare.differences import meaning
from fope_lab.report.files import write_report
from fope_lab.report.render.documents import markdown_text, render_markdown
from fope_lab.report.render.json import report_numbers
from fope_lab.report.render.tables import build_tables, compared_texts
from fope_lab.store import Store

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
