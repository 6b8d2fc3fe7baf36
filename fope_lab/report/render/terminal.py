"""The report for people at a terminal: tables, comparison with the paper, summary, claims."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fope_lab.config.console import WIDTH, plain_console
from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.render.claims_view import (
    count_words,
    describe_chance,
    group_by_basis,
    seed_lines,
)
from fope_lab.report.render.tables import Table, TableEntry, paper_table, report_tables

MOST_MISSING = 20
MOST_VERDICTS = 40
"""The page and the JSON list all missing stages and verdicts."""


def report_text(report: Report) -> str:
    """The tables, the comparison with the paper, the summary and the claims, with the codes of a
    terminal's colours. Its lines are as long as they are, whatever the terminal's width."""
    console = plain_console(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=WIDTH
    )
    with console.capture() as captured:
        for table in report_tables(report):
            _print(console, table_text(table), "")
        if (paper := report.paper) is not None:
            _print(console, f"Comparison with {paper.published.source}: {paper.summary}")
            if paper.numbers:
                _print(console, table_text(paper_table(paper)))
            _print(console, *(f"  {text}" for text in paper.absent), "")
        summary = report.summary
        _print(console, f"{report.name}: {summary.headline} {summary.seeds_line}")
        _print(console, *(f"  {line}" for line in (*seed_lines(report), *summary.findings)))
        _print(console, *claim_lines(report.verdicts))
    return captured.get()


def print_report(
    text: str, missing: Sequence[str], console: Console, most_missing: int = MOST_MISSING
) -> None:
    """Print what `report_text` made, then the first `most_missing` stages that are missing. A run
    names none: it tells each cause of a failure once."""
    _print(console, *(Text.from_ansi(line) for line in text.removesuffix("\n").split("\n")))
    if missing and most_missing:
        gaps = [f"  {text}" for text in missing[:most_missing]]
        _print(console, "Missing:", *gaps, *_rest(len(missing) - most_missing))


def claim_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The verdicts under their claims; none if there are no claims."""
    if not verdicts:
        return
    counts = count_words(verdict.verdict for verdict in verdicts)
    yield f"Claims: {' '.join(filter(None, [f'{counts}.', describe_chance(verdicts)]))}"
    left = MOST_VERDICTS
    for basis, claims in group_by_basis(verdicts):
        if basis and left:
            yield f"  {basis}"
        for claim in claims:
            if left == 0:
                break
            yield f"  {claim.text}{f': {claim.counts}' if claim.several else ''}"
            for row in claim.rows[:left]:
                where = claim.where(row)
                word = f"{row.mark} {row.verdict.verdict}"
                yield f"    {word:<13}  {f'{where}: ' if where else ''}{row.numbers}; {row.why}"
            left -= min(left, len(claim.rows))
    yield from _rest(len(verdicts) - MOST_VERDICTS)


def _rest(count: int) -> list[str]:
    return [f"  and {count} more; the report lists them all"] if count > 0 else []


def _print(console: Console, *lines: str | Text) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def table_text(table: Table) -> Text:
    """A table as aligned lines, with colours at a terminal; * marks the best of a column, † the
    training length."""
    lines = [[*map(Text, table.header)]]
    for row in table.rows:
        looks = ["bold green" if entry.best else "" for entry in row.entries]
        entries = map(Text, (_marked(table, entry) for entry in row.entries), looks)
        lines.append([*map(Text, (*row.labels, row.seeds)), *entries])
    widths = [max(text.cell_len for text in column) for column in zip(*lines, strict=True)]
    for line in lines:
        for i, (text, width) in enumerate(zip(line, widths, strict=True)):
            text.align("left" if i < len(table.labels) else "right", width)
    texts = [Text("  ").join(line) for line in lines]
    for text in texts:
        text.rstrip()
    rule = Text("-" * max(text.cell_len for text in texts))
    title, legend = Text(table.title, "bold"), Text(table.legend("*"), "dim")
    return Text("\n").join([title, rule, texts[0], rule, *texts[1:], rule, legend])


def _marked(table: Table, entry: TableEntry) -> str:
    """An entry with its marks; spaces replace absent marks, so that the numbers stay aligned."""
    text = entry.text + entry.marks.ljust(table.marks_width)
    return f"{text} {'*' if entry.best else ' '}" if table.has_best else text
