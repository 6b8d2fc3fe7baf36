"""The report for people at a terminal: tables, comparison with the paper, summary, claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.render.claims_view import (
    count_verdicts,
    describe_chance,
    group_verdicts,
    seed_lines,
)
from fope_lab.report.render.table import Table, TableEntry
from fope_lab.report.render.tables import paper_table, report_tables

MOST_MISSING = 20
MOST_VERDICTS = 40
"""The page and the JSON list all missing stages and verdicts."""


def print_report(report: Report, console: Console, most_missing: int = MOST_MISSING) -> None:
    """Print the tables, the comparison with the paper, the summary, the claims and the gaps.

    The gaps are the first `most_missing` stages that are missing. A run names none: it tells each
    cause of a failure once.
    """
    for table in report_tables(report):
        print_table(table, console)
        console.print()
    if (paper := report.paper) is not None:
        _print(console, f"Comparison with {paper.published.source}: {paper.summary}")
        if paper.numbers:
            print_table(paper_table(paper), console)
        _print(console, *(f"  {text}" for text in paper.absent), "")
    _print(console, *_closing_lines(report, most_missing))


def _closing_lines(report: Report, most_missing: int) -> Iterator[str]:
    """The summary, the claims and the gaps."""
    summary = report.summary
    yield f"{report.name}: {summary.headline} {summary.seeds_line}"
    yield from (f"  {line}" for line in seed_lines(report))
    yield from (f"  {finding}" for finding in summary.findings)
    yield from claim_lines(report.verdicts)
    if summary.missing and most_missing:
        yield "Missing:"
        yield from (f"  {text}" for text in summary.missing[:most_missing])
        yield from _rest(len(summary.missing) - most_missing)


def claim_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The verdicts under their claims; none if there are no claims."""
    if not verdicts:
        return
    chance = describe_chance(verdicts)
    yield f"Claims: {' '.join(filter(None, [f'{count_verdicts(verdicts)}.', chance]))}"
    left = MOST_VERDICTS
    shown = ""
    for claim in group_verdicts(verdicts):
        if left == 0:
            break
        if claim.basis and claim.basis != shown:
            yield f"  {claim.basis}"
        shown = claim.basis
        yield f"  {claim.text}{f': {claim.counts}' if claim.several else ''}"
        for row in claim.rows[:left]:
            where = claim.where(row)
            word = f"{row.mark} {row.verdict.verdict}"
            yield f"    {word:<13}  {f'{where}: ' if where else ''}{row.numbers}; {row.why}"
        left -= min(left, len(claim.rows))
    yield from _rest(len(verdicts) - MOST_VERDICTS)


def _rest(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  and {count} more; the report lists them all"


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_table(table: Table, console: Console) -> None:
    """Print a table with colours at a terminal, and as aligned plain text anywhere else."""
    if not console.is_terminal:
        _print(console, plain_text(table))
        return
    shown = RichTable(
        title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD
    )
    for label in table.labels:
        shown.add_column(Text(label))
    shown.add_column(Text("seeds"), justify="right")
    for column, label in zip(table.columns, table.header[-len(table.columns) :], strict=True):
        shown.add_column(Text(label, style="underline" if column.trained else ""), justify="right")
    for i, row in enumerate(table.rows):
        entries = [
            Text(_marked(table, entry), style="bold green" if entry.best else "")
            for entry in row.entries
        ]
        ends_panel = i + 1 < len(table.rows) and table.rows[i + 1].starts_panel
        shown.add_row(*map(Text, row.labels), Text(row.seeds), *entries, end_section=ends_panel)
    console.print(shown)
    console.print(Text(table.legend, style="dim"))


def plain_text(table: Table) -> str:
    """Format a table as aligned lines; * marks the best of a column, † the training length."""
    lines = [
        table.header,
        *(
            [*row.labels, row.seeds, *(_marked(table, entry) for entry in row.entries)]
            for row in table.rows
        ),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    left = len(table.labels)
    texts = [
        "  ".join(
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "-" * max(map(len, texts))
    return "\n".join([table.title, rule, texts[0], rule, *texts[1:], rule, table.legend])


def _marked(table: Table, entry: TableEntry) -> str:
    """An entry with its marks; spaces replace absent marks, so that the numbers stay aligned."""
    text = entry.text + entry.marks.ljust(table.marks_width)
    if not table.has_best:
        return text
    return f"{text} *" if entry.best else f"{text}  "
