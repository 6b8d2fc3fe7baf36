"""The tables of a report, as one structure that every renderer shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fope_lab.report.build import Report
from fope_lab.report.compare.best import clearly_best, meaning
from fope_lab.report.compare.comparability_marks import MARK, ComparabilityMarks
from fope_lab.report.results.aggregate import Cell, CellKey
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.stages.result import Measurement
from fope_lab.statistics.t_test import STUDENT_T, SeedTest

NOTHING = "–"
CHOSEN = "§"
"""The mark of models that a selection took."""
MOST_COLUMNS = 16
GUESSING = "Guessing gives"


@dataclass(frozen=True)
class TableColumn:
    """A column of numbers; `trained` marks a length at which models were trained."""

    label: str
    trained: bool


@dataclass(frozen=True)
class TableEntry:
    """The text of an entry and the cell behind it; the cell is None if the sweep has none.

    `best` says whether the entry is better than every other of its column (compare/best.py),
    `chosen` whether a selection took its models. `unequal` lists what these differ in from those of
    the other rows. `says` is the tooltip of an entry without a cell.
    """

    text: str
    best: bool
    cell: Cell | None
    unequal: tuple[str, ...] = ()
    says: str = "not part of this sweep"
    chosen: bool = False

    @property
    def marks(self) -> str:
        """A mark if a selection took the models, and one if they differ in more than what is
        compared."""
        return CHOSEN * self.chosen + MARK * bool(self.unequal)

    @property
    def marked(self) -> str:
        """The text with its marks."""
        return f"{self.text}{self.marks}"

    @property
    def title(self) -> str:
        """The value and the key of every seed, for a tooltip."""
        if self.cell is None:
            return self.says
        values = [_value_title(v.measurement, f"seed {v.seed}", v.key) for v in self.cell.values]
        missing = [f"seed {m.seed}: {m.status}: {m.reason} ({m.key})" for m in self.cell.missing]
        unequal = [f"{MARK} {words}" for words in self.unequal]
        return "\n".join(values + missing + unequal)


def _value_title(measurement: Measurement, seed: str, key: str) -> str:
    text = f"{seed}: {measurement.value!r}"
    if measurement.stderr is not None:
        text += f", standard error {measurement.stderr:.3g}"
    if measurement.ci95 is not None:
        text += ", 95 % interval [{:.4g}, {:.4g}]".format(*measurement.ci95)
    return f"{text} ({key})"


@dataclass(frozen=True)
class TableRow:
    """The values of the axes, the number of seeds, and the entries of one row."""

    labels: tuple[str, ...]
    seeds: str
    entries: tuple[TableEntry, ...]
    starts_panel: bool


@dataclass(frozen=True)
class Table:
    """A table of a report: its title, columns, rows and notes.

    `test` is that by which the best of a column is marked, if any is.
    """

    title: str
    labels: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]
    test: SeedTest = STUDENT_T

    @property
    def has_best(self) -> bool:
        """Whether any entry is the best of its column."""
        return any(entry.best for row in self.rows for entry in row.entries)

    @property
    def marks_width(self) -> int:
        """The most marks that an entry has."""
        return max((len(entry.marks) for row in self.rows for entry in row.entries), default=0)

    @property
    def header(self) -> list[str]:
        """The labels of all columns; † marks the training lengths."""
        return [
            *self.labels,
            "seeds",
            *(f"{column.label}†" if column.trained else column.label for column in self.columns),
        ]

    @property
    def legend(self) -> str:
        """The meaning of the marks, where a star marks the best of a column; then the notes."""
        return self._legend(f"* {meaning(self.test)}.")

    @property
    def bold_legend(self) -> str:
        """The same, where the best of a column is bold."""
        return self._legend(f"Bold: {meaning(self.test)}.")

    def _legend(self, best: str) -> str:
        marks = [best] if self.has_best else []
        if any(column.trained for column in self.columns):
            marks.append("† training length.")
        return " ".join([*marks, *self.notes])


def build_tables(report: Report) -> tuple[Table, ...]:
    """Build a table for each curve, and one for all single numbers of a stage that have one kind.

    All accuracies of a stage, or all its losses, are joined if they have the same rows.
    """
    joined: dict[object, list[tuple[MetricGroup, Table]]] = {}
    for index, group in enumerate(report.table_groups):
        notes = report.own_settings[group.key]
        table = build_table(group, report.marks[group.key], report.seed_test, notes)
        rows = tuple((row.labels, row.seeds) for row in table.rows)
        place = (group.section, _last_word(group), rows) if group.metric.axis is None else index
        joined.setdefault(place, []).append((group, table))
    return tuple(_join(tables) for tables in joined.values())


def build_table(
    group: MetricGroup,
    marks: ComparabilityMarks,
    test: SeedTest,
    own_settings: Sequence[str] = (),
) -> Table:
    """Build the table of a group: a row for each series, a column for each x.

    `own_settings` are the notes on the learning rates behind the rows.
    """
    xs = shown_xs(group)
    trained = set(group.trained_lengths) if group.metric.axis == LENGTH else set()
    several_lengths = len(trained) > 1
    best = _best(group, test)
    rows = []
    previous = None
    for members in group.panels.values():
        for series in members:
            labels = series.axis_values or (series.label,)
            if several_lengths:
                labels = (*labels, str(series.trained_length or NOTHING))
            unequal = marks.differences.get(series.key, ())
            entries = tuple(
                TableEntry(cell_text(group.metric, cell), cell.key in best, cell, unequal)
                if (cell := series.cells.get(x)) is not None
                else TableEntry(NOTHING, False, None)
                for x in xs
            )
            done, requested = series.done, series.requested
            seeds = f"{done}" if done == requested else f"{done} of {requested}"
            starts_panel = previous is not None and series.panel != previous
            rows.append(TableRow(labels, seeds, entries, starts_panel))
            previous = series.panel
    return Table(
        title=group.title,
        labels=(group.axes or ("model",)) + (("trained at",) if several_lengths else ()),
        columns=tuple(TableColumn("value" if x is None else f"{x}", x in trained) for x in xs),
        rows=tuple(rows),
        notes=(*_notes(group, test, bool(best)), *own_settings, *filter(None, [marks.note])),
        test=test,
    )


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
        columns=tuple(TableColumn(_subject(member), False) for member, _ in tables),
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


def shown_xs(group: MetricGroup) -> tuple[int | None, ...]:
    """The columns of a group."""
    return shown_of(group.xs)


def shown_of(every: Iterable[int | None]) -> tuple[int | None, ...]:
    """Every x, or if there are too many, some at equal steps with both ends."""
    xs = tuple(every)
    if len(xs) <= MOST_COLUMNS:
        return xs
    indices = {round(i * (len(xs) - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)}
    return tuple(xs[index] for index in sorted(indices))


def cell_text(metric: Metric, cell: Cell) -> str:
    """Mean ± half width; without a mean, the non-finite value; without values, the state."""
    write = metric.format
    estimate = cell.estimate
    if not cell.values:
        states = dict.fromkeys(gap.status for gap in cell.missing)
        return ", ".join(states) or NOTHING
    if estimate.mean is None:
        odd = [v.value for v in cell.values if not math.isfinite(v.value)]
        if len(cell.values) == 1:
            return write(odd[0])
        return f"{write(odd[0])} in {len(odd)} of {len(cell.values)}"
    if estimate.half_width is None and cell.single is not None:
        return write(estimate.mean) + _sampling_error(metric, cell.single)
    return write(estimate.mean, estimate.half_width)


def _sampling_error(metric: Metric, measurement: Measurement) -> str:
    """The sampling error of one evaluation in brackets; empty if it is unknown."""
    value, write = measurement.value, metric.format_error
    if measurement.stderr is not None:
        return f" (se {write(value, measurement.stderr)})"
    if measurement.ci95 is not None:
        low, high = (write(value, end) for end in measurement.ci95)
        return f" ({low}–{high})"
    return ""


def _best(group: MetricGroup, test: SeedTest) -> set[CellKey]:
    """The cells that are better than every other of their column and panel."""
    columns = (
        [series.cells[x] for series in members if x in series.cells]
        for members in group.panels.values()
        for x in shown_xs(group)
    )
    return {best.key for cells in columns if (best := clearly_best(cells, test)) is not None}


def _notes(group: MetricGroup, test: SeedTest, has_best: bool) -> list[str]:
    metric, shown, cells = group.metric, shown_xs(group), group.cells
    notes = []
    if metric.axis is not None:
        notes.append(f"Columns: {metric.axis_label}.")
    if metric.better is not None:
        notes.append(f"{metric.better.capitalize()} is better.")
    if has_best and group.panel_axes:
        notes.append(f"Compared are the rows with the same {' and '.join(group.panel_axes)}.")
    if not has_best and any(_is_comparable(members, shown) for members in group.panels.values()):
        notes.append(f"No entry is marked: none is {meaning(test)}.")
    if group.shared:
        notes.append(f"The same in all rows: {'; '.join(group.shared)}.")
    if len(shown) < len(group.xs):
        notes.append(f"{len(shown)} of {len(group.xs)} columns are shown; the JSON has all.")
    if group.chance is not None:
        notes.append(f"{GUESSING} {metric.format(group.chance)}.")
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("±: half of the 95 % interval over seeds (Student's t).")
    single = [cell.single for cell in cells if cell.single]
    if any(measurement.stderr is not None for measurement in single):
        notes.append("(se …): standard error of the evaluation, over what it read.")
    if any(m.stderr is None and m.ci95 is not None for m in single):
        notes.append("(low–high): 95 % interval (Wilson's) of the evaluation, over what it read.")
    if any(cell.values and cell.estimate.mean is None for cell in cells):
        notes.append("There is no mean where a value is not finite; the JSON has all values.")
    return notes + seed_notes(cells)


def _is_comparable(members: Sequence[Series], xs: Sequence[int | None]) -> bool:
    """Whether a column has two entries or more of several seeds, and a better end."""
    columns = ([s.cells[x] for s in members if x in s.cells] for x in xs)
    return any(
        sum(cell.estimate.n > 1 for cell in cells) > 1 and cells[0].metric.better is not None
        for cells in columns
    )


def seed_notes(cells: Sequence[Cell]) -> list[str]:
    """A note if cells have one seed and therefore no interval."""
    counts = {cell.estimate.n for cell in cells if cell.estimate.n}
    if 1 not in counts:
        return []
    where = "One seed" if counts == {1} else "Where there is one seed"
    return [f"{where}: no interval over seeds, so a difference may be chance."]
