"""The report as Markdown, for a repository, an issue or a note: everything but the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.claims.samples import format_p
from fope_lab.report.render.claims_view import (
    count_verdicts,
    describe_tests,
    group_by_basis,
    seed_lines,
)
from fope_lab.report.render.figures import analysis_notes, analysis_numbers
from fope_lab.report.render.tables import NOTHING, PAPER_TITLE, Table, paper_table, report_tables
from fope_lab.report.results.stage_results import by_key

CLAIMS = ("claim", "where", "verdict", "p", "n", "why")
STAGES = ("stage", "state", "key", "MLflow run")


def render_markdown(report: Report) -> str:
    """Render all of the report but its figures, tables of stages and of their settings included."""
    return "\n\n".join(_parts(report)) + "\n"


def table_markdown(table: Table) -> str:
    """Render a table. The best of a column is bold, † marks training lengths, and ‡ models that
    differ in more than what is compared."""
    body = []
    for row in table.rows:
        entries = [
            f"**{escaped(entry.marked)}**" if entry.best else escaped(entry.marked)
            for entry in row.entries
        ]
        body.append([*map(escaped, (*row.labels, row.seeds)), *entries])
    return _grid([*map(escaped, table.header)], body, left=len(table.labels))


def claims_markdown(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Render a section with all verdicts, under what they stand for; nothing if there are none."""
    if not verdicts:
        return
    yield f"## Claims\n\n{count_verdicts(verdicts)}. {describe_tests(verdicts)}"
    for basis, claims in group_by_basis(verdicts):
        if basis:
            yield escaped(basis)
        rows = [
            (
                f"`{escaped(claim.text, '|')}`",
                escaped(claim.where(row)),
                f"{row.mark} {row.verdict.verdict}",
                _p_value(row.verdict),
                row.seeds,
                escaped(row.why),
            )
            for claim in claims
            for row in claim.rows
        ]
        yield _grid(CLAIMS, rows, left=len(CLAIMS))


def _p_value(verdict: Verdict) -> str:
    p, adjusted = (
        "" if p is None else format_p(p).removeprefix("p = ").removeprefix("p ")
        for p in (verdict.p, verdict.adjusted_p)
    )
    return escaped(f"{p} (adjusted {adjusted})" if adjusted else p)


def _parts(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.name)}"
    if report.description:
        yield escaped(report.description)
    summary = report.summary
    yield f"{summary.headline} {summary.seeds_line}"
    yield from map(escaped, seed_lines(report))
    if summary.findings:
        yield _list(summary.findings)
    yield from claims_markdown(report.verdicts)
    if (paper := report.paper) is not None:
        yield f"## {PAPER_TITLE}"
        published = paper.published
        yield f"{escaped(published.source)}, <{published.address}>. {paper.summary}"
        yield "The paper says, in our words:"
        yield _list(published.says)
        if paper.numbers:
            yield from _table(paper_table(paper))
        if paper.absent:
            yield "Published numbers without a cell in this sweep:"
            yield _list(paper.absent)
    if tables := report_tables(report):
        yield "## Tables"
        for table in tables:
            yield from _table(table)
    if report.analyses:
        yield "## Analyses"
        for result in report.analyses:
            yield f"### {escaped(result.title)}"
            yield escaped(" ".join(analysis_notes(result)))
            if numbers := analysis_numbers(result):
                yield _grid(("found here", "value"), [(escaped(n), v) for n, v in numbers], left=1)
    if summary.missing:
        yield "## Missing"
        yield _list(summary.missing)
    yield "## Provenance"
    yield _list(f"{name}: {value}" for name, value in report.provenance.items())
    yield "## Stages"
    stages = [
        (escaped(r.stage.label), r.state.status, key, report.links.ids.get(key, NOTHING))
        for key, r in by_key(report.stages).items()
    ]
    yield _grid(STAGES, stages, left=len(STAGES))


def _table(table: Table) -> Iterator[str]:
    yield f"### {escaped(table.title)}"
    yield table_markdown(table)
    yield escaped(table.legend("Bold:"))


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def escaped(text: str, marks: str = "\\`|<*[") -> str:
    """Escape text so that Markdown shows it unchanged, on one line. `marks` are the characters to
    escape."""
    line = " ".join(text.split())
    return "".join(f"\\{mark}" if mark in marks else mark for mark in line)


def _grid(header: Sequence[str], body: Iterable[Sequence[str]], left: int) -> str:
    """Format rows of escaped text as a table. The first `left` columns are aligned to the left, the
    others to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *body))
