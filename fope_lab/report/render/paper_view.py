"""The comparison with the paper as texts and as a table."""

from __future__ import annotations

from fope_lab.report.compare.paper_comparison import ComparedNumber, PaperComparison
from fope_lab.report.render.tables import NOTHING, Table, TableColumn, TableEntry, TableRow

TITLE = "Comparison with the paper"
COLUMNS = ("published", "ours", "difference", "inside")
MEANING = (
    "Difference: ours minus published; ± is half of our 95 % interval over seeds.",
    "Inside: whether our interval contains the published number.",
)
_INSIDE = {True: "yes", False: "no", None: NOTHING}


def compared_texts(number: ComparedNumber) -> tuple[str, str, str, str]:
    """The texts of COLUMNS: published, ours, difference, inside."""
    write, estimate = number.cell.metric.format, number.cell.estimate
    published = write(number.published) + (f" [{number.spread}]" if number.spread else "")
    if estimate.mean is None or number.difference is None:
        states = dict.fromkeys(gap.status for gap in number.cell.missing)
        ours = "not finite" if number.cell.values else ", ".join(states)
        return published, ours, NOTHING, NOTHING
    ours = write(estimate.mean, estimate.half_width)
    sign = "+" if number.difference >= 0 else "−"
    difference = sign + write(abs(number.difference), estimate.half_width)
    return published, ours, difference, _INSIDE[number.inside]


def our_entry(number: ComparedNumber) -> TableEntry:
    """Our number as the entry of a table."""
    return TableEntry(compared_texts(number)[1], False, number.cell)


def paper_table(paper: PaperComparison) -> Table:
    """A table with one compared number in each row."""
    rows: list[TableRow] = []
    for by_column in paper.rows.values():
        for index, number in enumerate(by_column.values()):
            entries = tuple(TableEntry(text, False, None) for text in compared_texts(number))
            labels, seeds = (number.label, number.column), str(number.cell.estimate.n)
            rows.append(TableRow(labels, seeds, entries, bool(rows) and index == 0))
    return Table(
        title=f"{paper.published.place}: {paper.published.title}",
        labels=("row", "column"),
        columns=tuple(TableColumn(name, False) for name in COLUMNS),
        rows=tuple(rows),
        notes=(*MEANING, *paper.notes),
    )
