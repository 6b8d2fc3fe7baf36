"""All tables of a report, in the order in which every renderer shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fope_lab.report.build import Report
from fope_lab.report.compare.before_after import BeforeAfter, Difference, difference_of
from fope_lab.report.compare.best import clearly_best, meaning
from fope_lab.report.compare.comparability import ComparabilityMarks
from fope_lab.report.compare.paper_comparison import ComparedNumber, PaperComparison
from fope_lab.report.render.table import (
    CHOSEN,
    NOTHING,
    SEED_INTERVAL,
    Table,
    TableColumn,
    TableEntry,
    TableRow,
    axis_notes,
    cell_text,
    direction_notes,
    seed_notes,
    shown_of,
)
from fope_lab.report.results.aggregate import Cell, CellKey
from fope_lab.report.results.layout import MetricGroup
from fope_lab.report.results.settings import OPTIMISTIC, SettingGroup
from fope_lab.stages.labels import label
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.statistics.t_test import SeedTest

GUESSING = "Guessing gives"
DIFFERENCE = (
    "Difference: the second minus the first; ± is half of its 95 % interval, over the differences"
    " under each seed (Student's paired t), or if fewer than two seeds are in both, over seeds that"
    " are independent (Welch's t). A difference marked better or worse has an interval without 0."
)
PAPER_TITLE = "Comparison with the paper"
PAPER_COLUMNS = ("published", "ours", "difference", "inside")
PAPER_NOTES = (
    "Difference: ours minus published; ± is half of our 95 % interval over seeds.",
    "Inside: whether our interval contains the published number.",
)
_INSIDE = {True: "yes", False: "no", None: NOTHING}


def report_tables(report: Report) -> tuple[Table, ...]:
    """The tables of the metrics, those of models before and after a change, and those over a
    setting of a training."""
    return (
        *build_tables(report),
        *map(before_after_table, report.before_after),
        *map(setting_table, report.table_settings),
    )


def build_tables(report: Report) -> tuple[Table, ...]:
    """Build a table for each curve, and one for all single numbers of a stage that have one kind.

    All accuracies of a stage, or all its losses, are joined if they have the same rows.
    """
    joined: dict[object, list[tuple[MetricGroup, Table]]] = {}
    for index, group in enumerate(report.table_groups):
        notes = report.own_settings[group.key]
        table = _metric_table(group, report.marks[group.key], report.seed_test, notes)
        rows = tuple((row.labels, row.seeds) for row in table.rows)
        place = (group.section, _last_word(group), rows) if group.metric.axis is None else index
        joined.setdefault(place, []).append((group, table))
    return tuple(_join(tables) for tables in joined.values())


def _metric_table(
    group: MetricGroup, marks: ComparabilityMarks, test: SeedTest, own_settings: Sequence[str]
) -> Table:
    """The table of a group: a row for each series, a column for each x.

    `own_settings` are the notes on the learning rates behind the rows.
    """
    xs = shown_of(group.xs)
    trained = set(group.trained_lengths) if group.metric.axis == LENGTH else set()
    several_lengths = len(trained) > 1
    best = _best(group, test)
    rows: list[TableRow] = []
    for members in group.panels.values():
        for index, series in enumerate(members):
            labels = series.axis_values or (series.label,)
            if several_lengths:
                labels = (*labels, str(series.trained_length or NOTHING))
            unequal = marks.differences.get(series.key, ())
            entries = tuple(
                TableEntry(cell_text(group.metric, cell), cell.key in best, cell, unequal)
                if (cell := series.cells.get(x)) is not None
                else TableEntry(NOTHING)
                for x in xs
            )
            done, requested = series.done, series.requested
            seeds = f"{done}" if done == requested else f"{done} of {requested}"
            rows.append(TableRow(labels, seeds, entries, bool(rows) and index == 0))
    return Table(
        title=group.title,
        labels=(group.axes or ("model",)) + (("trained at",) if several_lengths else ()),
        columns=_columns(xs, trained),
        rows=tuple(rows),
        notes=(*_notes(group, test, bool(best)), *own_settings, *filter(None, [marks.note])),
        test=test,
    )


def _columns(xs: Sequence[int | None], trained: set[int]) -> tuple[TableColumn, ...]:
    """A column for each x; a single number has one that is called value."""
    return tuple(TableColumn("value" if x is None else f"{x}", x in trained) for x in xs)


def _join(tables: Sequence[tuple[MetricGroup, Table]]) -> Table:
    if len(tables) == 1:
        return tables[0][1]
    group, first = tables[0]
    notes = [note for _, table in tables for note in table.notes if not note.startswith(GUESSING)]
    levels = [
        f"{_subject(g)} {g.metric.format(g.chance)}" for g, _ in tables if g.chance is not None
    ]
    if levels:
        notes.append(f"{GUESSING}: {', '.join(levels)}.")
    return Table(
        title=f"{_last_word(group).capitalize()} ({group.section})",
        labels=first.labels,
        columns=tuple(TableColumn(_subject(member)) for member, _ in tables),
        rows=tuple(
            replace(row, entries=tuple(e for _, table in tables for e in table.rows[i].entries))
            for i, row in enumerate(first.rows)
        ),
        notes=tuple(dict.fromkeys(notes)),
        test=first.test,
    )


def _last_word(group: MetricGroup) -> str:
    """The last word of a metric's label, as in accuracy or loss: a section's single numbers whose
    labels end in the same word share a table."""
    return group.metric.label.split()[-1]


def _subject(group: MetricGroup) -> str:
    """The words before the last one, such as the name of a task."""
    return group.metric.label.removesuffix(_last_word(group)).strip() or group.metric.label


def _compared(group: MetricGroup) -> list[list[Cell]]:
    """The cells that are compared with each other: those of a column and panel."""
    return [
        [series.cells[x] for series in members if x in series.cells]
        for members in group.panels.values()
        for x in shown_of(group.xs)
    ]


def _best(group: MetricGroup, test: SeedTest) -> set[CellKey]:
    found = (clearly_best(cells, test) for cells in _compared(group))
    return {best.key for best in found if best is not None}


def _notes(group: MetricGroup, test: SeedTest, has_best: bool) -> list[str]:
    metric, shown, cells = group.metric, shown_of(group.xs), group.cells
    notes = axis_notes(metric)
    if has_best and group.panel_axes:
        notes.append(f"Compared are the rows with the same {' and '.join(group.panel_axes)}.")
    if not has_best and metric.better is not None:
        columns = (sum(cell.estimate.n > 1 for cell in column) for column in _compared(group))
        if max(columns, default=0) > 1:
            notes.append(f"No entry is marked: none is {meaning(test)}.")
    if group.shared:
        notes.append(f"The same in all rows: {'; '.join(group.shared)}.")
    if len(shown) < len(group.xs):
        notes.append(f"{len(shown)} of {len(group.xs)} columns are shown; the JSON has all.")
    if group.chance is not None:
        notes.append(f"{GUESSING} {metric.format(group.chance)}.")
    if any(cell.estimate.ci95 for cell in cells):
        notes.append(SEED_INTERVAL)
    single = [cell.single for cell in cells if cell.single]
    if any(measurement.stderr is not None for measurement in single):
        notes.append("(se …): standard error of the evaluation, over what it read.")
    if any(m.stderr is None and m.ci95 is not None for m in single):
        notes.append("(low–high): 95 % interval (Wilson's) of the evaluation, over what it read.")
    if any(cell.values and cell.estimate.mean is None for cell in cells):
        notes.append("There is no mean where a value is not finite; the JSON has all values.")
    return notes + seed_notes(cells)


def before_after_table(pair: BeforeAfter) -> Table:
    """The table of a metric before and after: for each model that was changed a row with its
    numbers before, one after, and one with the differences."""
    metric, sections = pair.after.metric, (pair.before.section, pair.after.section)
    xs = shown_of(x for x in pair.after.xs if x in pair.before.xs)
    lengths = {series.trained_length or 0 for both in pair.pairs for series in both}
    rows: list[TableRow] = []
    for both in pair.pairs:
        labels = both[1].axis_values or (both[1].label,)
        for section, series in zip(sections, both, strict=True):
            entries = [
                TableEntry(cell_text(metric, cell), cell=cell)
                if (cell := series.cells.get(x)) is not None
                else TableEntry(NOTHING)
                for x in xs
            ]
            starts = bool(rows) and series is both[0]
            rows.append(TableRow((*labels, section), str(series.done), tuple(entries), starts))
        before, after = both[0].cells, both[1].cells
        found = [
            difference_of(before[x], after[x]) if x in before and x in after else None for x in xs
        ]
        counts = {str(each.estimate.n) for each in found if each is not None}
        entries = [_difference_entry(each, metric) for each in found]
        count = counts.pop() if len(counts) == 1 else NOTHING
        rows.append(TableRow((*labels, "difference"), count, tuple(entries), False))
    title = metric.label[:1].upper() + metric.label[1:]
    return Table(
        title=f"{title} before and after: {' and '.join(sections)}",
        labels=(*(pair.after.axes or ("model",)), "stage"),
        columns=_columns(xs, lengths if metric.axis == LENGTH else set()),
        rows=tuple(rows),
        notes=(*axis_notes(metric), DIFFERENCE),
    )


def _difference_entry(difference: Difference | None, metric: Metric) -> TableEntry:
    """A difference with its sign, its interval, and what it means if that is certain."""
    if difference is None:
        return TableEntry(NOTHING, says="there is no difference: a value is missing")
    estimate = difference.estimate
    how = "paired over seeds" if difference.paired else "over independent seeds"
    interval = ", 95 % interval {:.4g} to {:.4g}".format(*estimate.ci95) if estimate.ci95 else ""
    mean = estimate.mean or 0.0
    sign = "+" if mean > 0 else "−" if mean < 0 else ""
    text = sign + metric.format(abs(mean), estimate.half_width)
    certain = difference.change in ("better", "worse")
    return TableEntry(
        f"{text} {difference.change}" if certain else text,
        says=f"{estimate.mean!r}{interval}, {how}, n = {estimate.n}",
    )


def setting_table(group: SettingGroup) -> Table:
    """The table over a setting of a training: a row for each method, a column for each value."""
    rows: list[TableRow] = []
    panel = ""
    for series in group.series:
        entries = tuple(
            TableEntry(cell_text(group.metric, cell), cell=cell, chosen=group.is_chosen(cell))
            if (cell := series.cells.get(value)) is not None
            else TableEntry(NOTHING)
            for value in group.values
        )
        starts = bool(rows) and series.panel != panel
        rows.append(
            TableRow(series.axis_values or (series.label,), f"{series.done}", entries, starts)
        )
        panel = series.panel
    return Table(
        title=group.title,
        labels=group.axes or ("model",),
        columns=tuple(TableColumn(label(value)) for value in group.values),
        rows=tuple(rows),
        notes=(f"Columns: {group.name} of {group.trained}.", *_setting_notes(group)),
    )


def _setting_notes(group: SettingGroup) -> list[str]:
    """What the numbers are, and what was chosen."""
    notes = direction_notes(group.metric)
    if any(cell.estimate.ci95 for cell in group.cells):
        notes.append(SEED_INTERVAL)
    notes += seed_notes(group.cells)
    if any(map(group.is_chosen, group.cells)):
        notes.append(f"{CHOSEN} chosen: the least mean {group.rule} over the seeds. {OPTIMISTIC}")
        notes += _edge_notes(group)
    elif group.by is not None and not any(cell.missing for cell in group.cells):
        notes.append("None is chosen yet.")
    return notes


def _edge_notes(group: SettingGroup) -> list[str]:
    """A note on the series whose chosen value is the least or the largest of its candidates."""
    at_edge: dict[str, list[str]] = {}
    for series in group.series:
        cells = [*series.cells.values()]
        for word, cell in (("least", cells[0]), ("largest", cells[-1])):
            if group.is_chosen(cell):
                at_edge.setdefault(word, []).append(series.name)
    return [
        f"Chosen is the {word} value of {', '.join(names)}: a better one may lie beyond the grid."
        for word, names in at_edge.items()
    ]


def compared_texts(number: ComparedNumber) -> tuple[str, str, str, str]:
    """The texts of PAPER_COLUMNS: published, ours, difference, inside."""
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
    return TableEntry(compared_texts(number)[1], cell=number.cell)


def paper_table(paper: PaperComparison) -> Table:
    """A table with one compared number in each row."""
    rows: list[TableRow] = []
    for by_column in paper.rows.values():
        for index, number in enumerate(by_column.values()):
            entries = tuple(map(TableEntry, compared_texts(number)))
            labels, seeds = (number.label, number.column), str(number.cell.estimate.n)
            rows.append(TableRow(labels, seeds, entries, bool(rows) and index == 0))
    return Table(
        title=f"{paper.published.place}: {paper.published.title}",
        labels=("row", "column"),
        columns=tuple(map(TableColumn, PAPER_COLUMNS)),
        rows=tuple(rows),
        notes=(*PAPER_NOTES, *paper.notes),
    )
