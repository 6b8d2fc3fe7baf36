"""Tables of two models for each row: the numbers of both, and below them the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fope_lab.report.compare.before_after import BeforeAfter
from fope_lab.report.compare.cell_pairs import Difference, difference_of
from fope_lab.report.render.tables import (
    NOTHING,
    Table,
    TableColumn,
    TableEntry,
    TableRow,
    cell_text,
    shown_of,
)
from fope_lab.report.results.aggregate import Cell
from fope_lab.stages.metric import LENGTH, Metric

Cells = Mapping[int | None, Cell]
"""The cells of a series by x."""
DIFFERENCE = "difference"
MEANING = (
    "Difference: the second minus the first; ± is half of its 95 % interval, over the differences"
    " under each seed (Student's paired t), or if fewer than two seeds are in both, over seeds that"
    " are independent (Welch's t). A difference marked better or worse has an interval without 0."
)


def before_after_table(pair: BeforeAfter) -> Table:
    """The table of a metric before and after: three rows for each model that was changed."""
    before, after = pair.before.section, pair.after.section
    xs = shown_of(x for x in pair.after.xs if x in pair.before.xs)
    trained = {s.trained_length for two in pair.pairs for s in two}
    rows: list[TableRow] = []
    for first, second in pair.pairs:
        labels = second.axis_values or (second.label,)
        both = (first.cells, second.cells)
        rows += triple(labels, (before, after), both, pair.after.metric, xs, rows)
    by_length = pair.after.metric.axis == LENGTH
    return Table(
        title=f"{_title(pair.after.metric)} before and after: {before} and {after}",
        labels=(*(pair.after.axes or ("model",)), "stage"),
        columns=columns(xs, trained if by_length else set()),
        rows=tuple(rows),
        notes=(*axis_notes(pair.after.metric), MEANING),
    )


def triple(
    labels: Sequence[str],
    names: tuple[str, str],
    both: tuple[Cells, Cells],
    metric: Metric,
    xs: Sequence[int | None],
    before: Sequence[TableRow],
) -> list[TableRow]:
    """The rows of two series and of their difference; `before` are the rows above them."""
    rows = []
    for index, (name, cells) in enumerate(zip(names, both, strict=True)):
        entries = tuple(
            TableEntry(NOTHING, False, None)
            if (cell := cells.get(x)) is None
            else TableEntry(cell_text(metric, cell), False, cell)
            for x in xs
        )
        seeds = min((len(cell.values) for cell in cells.values()), default=0)
        starts = bool(before) and index == 0
        rows.append(TableRow((*labels, name), str(seeds) if cells else NOTHING, entries, starts))
    found = [
        difference_of(both[0][x], both[1][x]) if x in both[0] and x in both[1] else None for x in xs
    ]
    counts = {str(each.estimate.n) for each in found if each is not None}
    count = counts.pop() if len(counts) == 1 else NOTHING
    entries = tuple(difference_entry(each, metric) for each in found)
    return [*rows, TableRow((*labels, DIFFERENCE), count, entries, starts_panel=False)]


def difference_entry(difference: Difference | None, metric: Metric) -> TableEntry:
    """A difference with its sign, its interval, and what it means if that is certain."""
    if difference is None:
        return TableEntry(NOTHING, False, None, says="there is no difference: a value is missing")
    how = "paired over seeds" if difference.paired else "over independent seeds"
    interval = difference.estimate.ci95
    range_ = "" if interval is None else f", 95 % interval {interval[0]:.4g} to {interval[1]:.4g}"
    return TableEntry(
        difference_text(difference, metric),
        False,
        None,
        says=f"{difference.estimate.mean!r}{range_}, {how}, n = {difference.estimate.n}",
    )


def difference_text(difference: Difference, metric: Metric) -> str:
    """Such as "−0.43 ± 0.10 better"."""
    mean = difference.estimate.mean or 0.0
    sign = "+" if mean > 0 else "−" if mean < 0 else ""
    text = sign + metric.format(abs(mean), difference.estimate.half_width)
    certain = difference.change in ("better", "worse")
    return f"{text} {difference.change}" if certain else text


def columns(xs: Sequence[int | None], trained: set[int | None]) -> tuple[TableColumn, ...]:
    """A column for each x; a single number has one that is called value."""
    return tuple(
        TableColumn("value" if x is None else f"{x}", x is not None and x in trained) for x in xs
    )


def axis_notes(metric: Metric) -> list[str]:
    """What the columns are, and which direction is better."""
    notes = [] if metric.axis is None else [f"Columns: {metric.axis_label}."]
    return notes if metric.better is None else [*notes, f"{metric.better.capitalize()} is better."]


def _title(metric: Metric) -> str:
    return metric.label[:1].upper() + metric.label[1:]
