"""All tables of a report, in the order in which every renderer shows them, and their texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fope_lab.report.build import Report
from fope_lab.report.compare.comparability import MARK
from fope_lab.report.compare.differences import (
    BeforeAfter,
    Difference,
    clearly_best,
    difference_of,
    meaning,
)
from fope_lab.report.compare.paper_comparison import ComparedNumber, PaperComparison
from fope_lab.report.results.cells import Cell
from fope_lab.report.results.layout import MetricGroup, capital
from fope_lab.report.results.settings import OPTIMISTIC, SettingGroup
from fope_lab.stages.labels import label
from fope_lab.stages.metric import LENGTH, Measurement, Metric
from fope_lab.statistics.decision import STUDENT_T, SeedTest

NOTHING = "–"
CHOSEN = "§"
"""The mark of models that a selection took."""
MOST_COLUMNS = 16
SEED_INTERVAL = "±: half of the 95 % interval over seeds (Student's t)."
GUESSING = "Guessing gives"
DIFFERENCE = (
    "Difference: the second minus the first; ± is half of its 95 % interval, over the differences"
    " under each seed (Student's paired t). A difference marked better or worse is significant in"
    " that test."
)
PAPER_TITLE = "Comparison with the paper"
PAPER_COLUMNS = ("published", "ours", "difference", "inside")
PAPER_NOTES = (
    "Difference: ours minus published; ± is half of our 95 % interval over seeds.",
    "Inside: whether our interval contains the published number.",
)


@dataclass(frozen=True)
class TableColumn:
    """A column of numbers; `trained` marks a length at which models were trained."""

    label: str
    trained: bool = False


@dataclass(frozen=True)
class TableEntry:
    """The text of an entry and the cell behind it; the cell is None if the sweep has none.

    `best` says whether the entry is better than every other of its column (compare/differences.py),
    `chosen` whether a selection took its models. `unequal` lists what these differ in from those of
    the other rows. `says` is the tooltip of an entry without a cell.
    """

    text: str
    cell: Cell | None = None
    best: bool = False
    unequal: tuple[str, ...] = ()
    chosen: bool = False
    says: str = "not part of this sweep"

    @property
    def marks(self) -> str:
        return CHOSEN * self.chosen + MARK * bool(self.unequal)

    @property
    def marked(self) -> str:
        return f"{self.text}{self.marks}"

    @property
    def title(self) -> str:
        if self.cell is None:
            return self.says
        values = [
            f"seed {v.seed}: {v.value!r}{_error_in_words(v.measurement)} ({v.key})"
            for v in self.cell.values
        ]
        missing = [f"seed {m.seed}: {m.status}: {m.reason} ({m.key})" for m in self.cell.missing]
        return "\n".join([*values, *missing, *(f"{MARK} {words}" for words in self.unequal)])


def _error_in_words(measurement: Measurement) -> str:
    text = ""
    if measurement.stderr is not None:
        text += f", standard error {measurement.stderr:.3g}"
    if measurement.ci95 is not None:
        text += ", 95 % interval [{:.4g}, {:.4g}]".format(*measurement.ci95)
    return text


@dataclass(frozen=True)
class TableRow:
    """The values of the axes, the number of seeds, and the entries of one row."""

    labels: tuple[str, ...]
    seeds: str
    entries: tuple[TableEntry, ...]
    starts_panel: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a report; `test` is that by which the best of a column is marked, if any is."""

    title: str
    labels: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]
    test: SeedTest = STUDENT_T

    @cached_property
    def has_best(self) -> bool:
        return any(entry.best for row in self.rows for entry in row.entries)

    @cached_property
    def marks_width(self) -> int:
        return max((len(entry.marks) for row in self.rows for entry in row.entries), default=0)

    @property
    def header(self) -> list[str]:
        """The labels of all columns; † marks the training lengths."""
        columns = (f"{column.label}{'†' * column.trained}" for column in self.columns)
        return [*self.labels, "seeds", *columns]

    def legend(self, best: str) -> str:
        """The meaning of the marks (`best` marks the best of a column), then the notes."""
        marks = [f"{best} {meaning(self.test)}."] if self.has_best else []
        if any(column.trained for column in self.columns):
            marks.append("† training length.")
        return " ".join([*marks, *self.notes])


def cell_text(cell: Cell) -> str:
    """Mean ± half width; without a mean, the non-finite value; without values, the state."""
    metric, estimate, single = cell.metric, cell.estimate, cell.single
    if not cell.values:
        return ", ".join(dict.fromkeys(gap.status for gap in cell.missing)) or NOTHING
    if estimate.mean is None:
        odd = [v.value for v in cell.values if not math.isfinite(v.value)]
        text = metric.format(odd[0])
        return text if single is not None else f"{text} in {len(odd)} of {len(cell.values)}"
    text = metric.format(estimate.mean, estimate.half_width)
    if estimate.half_width is None and single is not None:  # the evaluation's own error
        if single.stderr is not None:
            return f"{text} (se {metric.format_error(single.value, single.stderr)})"
        if single.ci95 is not None:
            low, high = (metric.format_error(single.value, end) for end in single.ci95)
            return f"{text} ({low}–{high})"
    return text


def _entry(cell: Cell | None, **marks: Any) -> TableEntry:
    return TableEntry(NOTHING) if cell is None else TableEntry(cell_text(cell), cell, **marks)


def _shown(every: Iterable[int | None]) -> tuple[int | None, ...]:
    """Every x, or if there are too many, some at equal steps with both ends."""
    xs = tuple(every)
    if len(xs) <= MOST_COLUMNS:
        return xs
    indices = {round(i * (len(xs) - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)}
    return tuple(xs[index] for index in sorted(indices))


def _columns(xs: Sequence[int | None], trained: Iterable[int]) -> tuple[TableColumn, ...]:
    """A column for each x; a single number has one that is called value."""
    return tuple(TableColumn("value" if x is None else f"{x}", x in set(trained)) for x in xs)


def _axis_notes(metric: Metric) -> list[str]:
    columns = [] if metric.axis is None else [f"Columns: {metric.axis.label}."]
    return columns + _direction_notes(metric)


def _direction_notes(metric: Metric) -> list[str]:
    return [] if metric.better is None else [f"{metric.better.capitalize()} is better."]


def seed_notes(cells: Sequence[Cell]) -> list[str]:
    """A note if cells have one seed and therefore no interval."""
    counts = {cell.estimate.n for cell in cells if cell.estimate.n}
    if 1 not in counts:
        return []
    where = "One seed" if counts == {1} else "Where there is one seed"
    return [f"{where}: no interval over seeds, so a difference may be chance."]


def report_tables(report: Report) -> tuple[Table, ...]:
    """The tables of the metrics, those of models before and after a change, and those over a
    setting of a training: for documents.py (HTML, Markdown, LaTeX) and terminal.py."""
    return (
        *build_tables(report),
        *map(before_after_table, report.before_after),
        *map(setting_table, report.table_settings),
    )


def build_tables(report: Report) -> tuple[Table, ...]:
    """Build a table for each curve, and one for all single numbers of a stage that have one kind.
    All accuracies of a stage, or all its losses, are joined if they have the same rows."""
    joined: dict[object, list[tuple[MetricGroup, Table]]] = {}
    for index, group in enumerate(report.table_groups):
        table = _metric_table(group, report.seed_test)
        rows = tuple((row.labels, row.seeds) for row in table.rows)
        place = (group.section, _last_word(group), rows) if group.metric.axis is None else index
        joined.setdefault(place, []).append((group, table))
    return tuple(_join(tables) for tables in joined.values())


def _metric_table(group: MetricGroup, test: SeedTest) -> Table:
    metric, xs = group.metric, _shown(group.xs)
    trained = group.trained_lengths if metric.axis == LENGTH else ()
    several_lengths = len(trained) > 1
    compared = [  # the cells of a column and panel
        [series.cells[x] for series in members if x in series.cells]
        for members in group.panels.values()
        for x in xs
    ]
    best = {found.key for cells in compared if (found := clearly_best(cells, test)) is not None}
    rows: list[TableRow] = []
    for members in group.panels.values():
        for series in members:
            labels = series.row_labels
            if several_lengths:
                labels = (*labels, str(series.trained_length or NOTHING))
            cells = [series.cells.get(x) for x in xs]
            entries = tuple(
                _entry(c, best=c is not None and c.key in best, unequal=series.unequal)
                for c in cells
            )
            done, requested = series.done, series.requested
            seeds = f"{done}" if done == requested else f"{done} of {requested}"
            rows.append(TableRow(labels, seeds, entries, bool(rows) and series is members[0]))
    notes = _axis_notes(metric)
    if best and group.panel_axes:
        notes.append(f"Compared are the rows with the same {' and '.join(group.panel_axes)}.")
    comparable = any(sum(cell.estimate.n > 1 for cell in cells) > 1 for cells in compared)
    if not best and metric.better is not None and comparable:
        notes.append(f"No entry is marked: none is {meaning(test)}.")
    notes += _cell_notes(group, xs)
    return Table(
        title=group.title,
        labels=(group.axes or ("model",)) + (("trained at",) if several_lengths else ()),
        columns=_columns(xs, trained),
        rows=tuple(rows),
        notes=(*notes, *group.rates, *filter(None, [group.unequal])),
        test=test,
    )


def _cell_notes(group: MetricGroup, shown: Sequence[int | None]) -> list[str]:
    metric, cells, notes = group.metric, group.cells, []
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
    return replace(
        first,
        title=f"{_last_word(group).capitalize()} ({group.section})",
        columns=tuple(TableColumn(_subject(member)) for member, _ in tables),
        rows=tuple(
            replace(row, entries=tuple(e for _, table in tables for e in table.rows[i].entries))
            for i, row in enumerate(first.rows)
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _last_word(group: MetricGroup) -> str:
    """Single numbers whose labels end in the same word, such as accuracy, share a table."""
    return group.metric.label.split()[-1]


def _subject(group: MetricGroup) -> str:
    return group.metric.label.removesuffix(_last_word(group)).strip() or group.metric.label


def before_after_table(pair: BeforeAfter) -> Table:
    """The table of a metric before and after: for each model that was changed a row with its
    numbers before, one after, and one with the differences."""
    metric, sections = pair.after.metric, (pair.before.section, pair.after.section)
    xs = _shown(x for x in pair.after.xs if x in pair.before.xs)
    lengths = {s.trained_length or 0 for both in pair.pairs for s in both}
    rows: list[TableRow] = []
    for both in pair.pairs:
        labels = both[1].row_labels
        for section, series in zip(sections, both, strict=True):
            entries = tuple(_entry(series.cells.get(x)) for x in xs)
            starts = bool(rows) and series is both[0]
            rows.append(TableRow((*labels, section), str(series.done), entries, starts))
        before, after = both[0].cells, both[1].cells
        found = [
            difference_of(before[x], after[x]) if x in before and x in after else None for x in xs
        ]
        counts = {str(each.estimate.n) for each in found if each is not None}
        count = counts.pop() if len(counts) == 1 else NOTHING
        entries = tuple(_difference_entry(each, metric) for each in found)
        rows.append(TableRow((*labels, "difference"), count, entries))
    return Table(
        title=f"{capital(metric.label)} before and after: {' and '.join(sections)}",
        labels=(*(pair.after.axes or ("model",)), "stage"),
        columns=_columns(xs, lengths if metric.axis == LENGTH else ()),
        rows=tuple(rows),
        notes=(*_axis_notes(metric), DIFFERENCE),
    )


def _difference_entry(difference: Difference | None, metric: Metric) -> TableEntry:
    if difference is None:
        return TableEntry(NOTHING, says="there is no difference: a value is missing")
    estimate = difference.estimate
    how = "paired over seeds" if difference.paired else "of means without a seed in common"
    interval = ", 95 % interval {:.4g} to {:.4g}".format(*estimate.ci95) if estimate.ci95 else ""
    mean = estimate.mean or 0.0
    sign = "+" if mean > 0 else "−" if mean < 0 else ""
    text = sign + metric.format(abs(mean), estimate.half_width)
    return TableEntry(
        " ".join(filter(None, [text, difference.change])),
        says=f"{estimate.mean!r}{interval}, {how}, n = {estimate.n}",
    )


def setting_table(group: SettingGroup) -> Table:
    """The table over a setting of a training: a row for each method, a column for each value."""
    rows: list[TableRow] = []
    panel = ""
    for series in group.series:
        cells = [series.cells.get(value) for value in group.values]
        entries = tuple(_entry(c, chosen=c is not None and group.is_chosen(c)) for c in cells)
        starts = bool(rows) and series.panel != panel
        rows.append(TableRow(series.row_labels, f"{series.done}", entries, starts))
        panel = series.panel
    notes = [f"Columns: {group.name} of {group.trained}.", *_direction_notes(group.metric)]
    if any(cell.estimate.ci95 for cell in group.cells):
        notes.append(SEED_INTERVAL)
    notes += seed_notes(group.cells)
    if any(map(group.is_chosen, group.cells)):
        notes.append(f"{CHOSEN} chosen: the least mean {group.by} over the seeds. {OPTIMISTIC}")
        notes += _edge_notes(group)
    elif group.by is not None and not any(cell.missing for cell in group.cells):
        notes.append("None is chosen yet.")
    return Table(
        title=group.title,
        labels=group.axes or ("model",),
        columns=tuple(TableColumn(label(value)) for value in group.values),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _edge_notes(group: SettingGroup) -> list[str]:
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
    sign = "+" if number.difference >= 0 else "−"
    difference = sign + write(abs(number.difference), estimate.half_width)
    inside = {True: "yes", False: "no", None: NOTHING}[number.inside]
    return published, write(estimate.mean, estimate.half_width), difference, inside


def our_entry(number: ComparedNumber) -> TableEntry:
    """Our number as the entry of a table."""
    return TableEntry(compared_texts(number)[1], number.cell)


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
