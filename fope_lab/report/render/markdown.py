"""The report as Markdown, for a repository, an issue or a note: everything but the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.claims.reasons import format_p
from fope_lab.report.compare.paper_comparison import PaperComparison
from fope_lab.report.render.claims_view import (
    ClaimView,
    count_verdicts,
    describe_tests,
    group_by_basis,
    seed_lines,
)
from fope_lab.report.render.figures import analysis_notes, analysis_numbers
from fope_lab.report.render.table import Table
from fope_lab.report.render.tables import PAPER_TITLE, paper_table, report_tables


def render_markdown(report: Report) -> str:
    """Render all of the report but its figures, tables of stages and of their settings included."""
    return "\n\n".join(_parts(report)) + "\n"


def table_markdown(table: Table) -> str:
    """Render a table.

    The best of a column is bold, † marks training lengths, and ‡ models that differ in more than
    what is compared.
    """
    body = []
    for row in table.rows:
        entries = [
            f"**{escaped(entry.marked)}**" if entry.best else escaped(entry.marked)
            for entry in row.entries
        ]
        body.append([*map(escaped, (*row.labels, row.seeds)), *entries])
    return grid([*map(escaped, table.header)], body, left=len(table.labels))


def claims_markdown(verdicts: Sequence[Verdict]) -> str:
    """Render a section with all verdicts, under what they stand for; empty if there are none."""
    if not verdicts:
        return ""
    parts = [f"## Claims\n\n{count_verdicts(verdicts)}. {describe_tests(verdicts)}"]
    for basis, claims in group_by_basis(verdicts):
        parts += [escaped(basis)] if basis else []
        parts.append(_verdict_table(claims))
    return "\n\n".join(parts) + "\n"


def _verdict_table(claims: Sequence[ClaimView]) -> str:
    rows = [
        (
            f"`{escaped(row.verdict.text, '|')}`",
            escaped(claim.where(row)),
            f"{row.mark} {row.verdict.verdict}",
            _p_value(row.verdict),
            "exact" if row.verdict.is_exact else str(row.verdict.n),
            escaped(row.why),
        )
        for claim in claims
        for row in claim.rows
    ]
    header = ("claim", "where", "verdict", "p", "n", "why")
    return grid(header, rows, left=len(header))


def _p_value(verdict: Verdict) -> str:
    """The p-value, and the adjusted one in brackets."""
    if verdict.p is None:
        return ""
    adjusted = verdict.adjusted_p
    also = "" if adjusted is None else f" (adjusted {_number(adjusted)})"
    return escaped(f"{_number(verdict.p)}{also}")


def _number(p: float) -> str:
    return format_p(p).removeprefix("p = ").removeprefix("p ")


def _parts(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.name)}"
    if report.description:
        yield escaped(report.description)
    summary = report.summary
    yield f"{summary.headline} {summary.seeds_line}"
    yield from map(escaped, seed_lines(report))
    if summary.findings:
        yield _list(summary.findings)
    if claims := claims_markdown(report.verdicts):
        yield claims.rstrip()
    if report.paper is not None:
        yield from _paper(report.paper)
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
                yield grid(("found here", "value"), [(escaped(n), v) for n, v in numbers], left=1)
    if summary.missing:
        yield "## Missing"
        yield _list(summary.missing)
    yield "## Provenance"
    yield _list(f"{name}: {value}" for name, value in report.provenance.items())
    yield "## Stages"
    yield _stages(report)


def _paper(paper: PaperComparison) -> Iterator[str]:
    published = paper.published
    yield f"## {PAPER_TITLE}"
    yield f"{escaped(published.source)}, <{published.address}>. {paper.summary}"
    yield "The paper says, in our words:"
    yield _list(published.says)
    if paper.numbers:
        yield from _table(paper_table(paper))
    if paper.absent:
        yield "Published numbers without a cell in this sweep:"
        yield _list(paper.absent)


def _table(table: Table) -> Iterator[str]:
    yield f"### {escaped(table.title)}"
    yield table_markdown(table)
    yield escaped(table.bold_legend)


def _stages(report: Report) -> str:
    ids = report.links.ids
    return grid(
        ("stage", "state", "key", "MLflow run"),
        [
            (escaped(r.stage.label), r.state.status, r.stage.key, ids.get(r.stage.key, "–"))
            for r in report.stages
        ],
        left=4,
    )


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def escaped(text: str, marks: str = "\\`|<*[") -> str:
    """Escape text so that Markdown shows it unchanged, on one line.

    `marks` are the characters to escape.
    """
    line = " ".join(text.split())
    return "".join(f"\\{mark}" if mark in marks else mark for mark in line)


def grid(header: Sequence[str], body: Iterable[Sequence[str]], left: int) -> str:
    """Format rows of escaped text as a table.

    The first `left` columns are aligned to the left, the others to the right.
    """
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *body))
