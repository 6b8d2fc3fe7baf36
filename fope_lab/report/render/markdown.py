"""The report as Markdown, for a repository, an issue or a note: everything but the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fope_lab.report.render.claims_view import claims_markdown
from fope_lab.report.render.markdown_text import escaped, grid
from fope_lab.report.render.tables import Table, header_of, legend_of

if TYPE_CHECKING:
    from fope_lab.report.build import Report
    from fope_lab.report.compare.paper_comparison import PaperComparison


def render_markdown(report: Report) -> str:
    """The whole report: summary, the paper's numbers beside ours, all tables, and where every
    number comes from."""
    return "\n\n".join(_parts(report)) + "\n"


def table_markdown(table: Table) -> str:
    """A table; the best of a column is bold, † marks the trained length, ‡ models that differ."""
    header = [*table.labels, "seeds", *map(header_of, table.columns)]
    body = []
    for row in table.rows:
        entries = [escaped(entry.marked) for entry in row.entries]
        bold = [
            f"**{text}**" if entry.best else text
            for text, entry in zip(entries, row.entries, strict=True)
        ]
        body.append([*map(escaped, (*row.labels, row.seeds)), *bold])
    return grid([*map(escaped, header)], body, left=len(table.labels))


def _parts(report: Report) -> Iterator[str]:
    yield f"# {escaped(report.name)}"
    if report.description:
        yield escaped(report.description)
    summary = report.summary
    yield f"{summary.headline} {summary.seeds_line}"
    if summary.findings:
        yield _list(summary.findings)
    if claims := claims_markdown(report.verdicts):
        yield claims.rstrip()
    if report.beside is not None:
        yield from _beside(report.beside)
    if report.tables:
        yield "## Tables"
    for table in report.tables:
        yield f"### {escaped(table.title)}"
        yield table_markdown(table)
        yield escaped(legend_of(table))
    if summary.missing:
        yield "## Missing"
        yield _list(summary.missing)
    yield "## Provenance"
    yield _list(f"{name}: {value}" for name, value in report.provenance.items())
    yield "## Stages"
    yield _stages(report)


def _beside(beside: PaperComparison) -> Iterator[str]:
    published = beside.published
    yield "## Ours beside theirs"
    yield f"{escaped(published.source)}, <{published.address}>. {beside.summary}"
    yield "The paper says:"
    yield _list(published.says)
    if beside.comparisons:
        yield f"### {escaped(beside.table.title)}"
        yield table_markdown(beside.table)
        yield escaped(legend_of(beside.table))
    if beside.absent:
        yield "Published numbers without a cell here:"
        yield _list(beside.absent)


def _stages(report: Report) -> str:
    return grid(
        ("stage", "state", "key", "MLflow run"),
        [
            (
                escaped(r.stage.label),
                r.state.status,
                r.stage.key,
                report.run_ids.get(r.stage.key, "–"),
            )
            for r in report.readings
        ],
        left=4,
    )


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)
