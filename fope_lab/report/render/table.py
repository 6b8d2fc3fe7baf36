"""The structure that every renderer shows as a table, and the texts of its entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fope_lab.report.compare.best import meaning
from fope_lab.report.compare.comparability import MARK
from fope_lab.report.results.aggregate import Cell
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import Measurement
from fope_lab.statistics.t_test import STUDENT_T, SeedTest

NOTHING = "–"
CHOSEN = "§"
"""The mark of models that a selection took."""
MOST_COLUMNS = 16
SEED_INTERVAL = "±: half of the 95 % interval over seeds (Student's t)."


@dataclass(frozen=True)
class TableColumn:
    """A column of numbers; `trained` marks a length at which models were trained."""

    label: str
    trained: bool = False


@dataclass(frozen=True)
class TableEntry:
    """The text of an entry and the cell behind it; the cell is None if the sweep has none.

    `best` says whether the entry is better than every other of its column (compare/best.py),
    `chosen` whether a selection took its models. `unequal` lists what these differ in from those of
    the other rows. `says` is the tooltip of an entry without a cell.
    """

    text: str
    best: bool = False
    cell: Cell | None = None
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
    """A table of a report; `test` is that by which the best of a column is marked, if any is."""

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
        columns = (
            f"{column.label}†" if column.trained else column.label for column in self.columns
        )
        return [*self.labels, "seeds", *columns]

    @property
    def legend(self) -> str:
        """The meaning of the marks, where a star marks the best of a column; then the notes."""
        return self._legend("*")

    @property
    def bold_legend(self) -> str:
        """The same, where the best of a column is bold."""
        return self._legend("Bold:")

    def _legend(self, best: str) -> str:
        marks = [f"{best} {meaning(self.test)}."] if self.has_best else []
        if any(column.trained for column in self.columns):
            marks.append("† training length.")
        return " ".join([*marks, *self.notes])


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


def shown_of(every: Iterable[int | None]) -> tuple[int | None, ...]:
    """Every x, or if there are too many, some at equal steps with both ends."""
    xs = tuple(every)
    if len(xs) <= MOST_COLUMNS:
        return xs
    indices = {round(i * (len(xs) - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)}
    return tuple(xs[index] for index in sorted(indices))


def direction_notes(metric: Metric) -> list[str]:
    """Which direction is better."""
    return [] if metric.better is None else [f"{metric.better.capitalize()} is better."]


def axis_notes(metric: Metric) -> list[str]:
    """What the columns are, and which direction is better."""
    columns = [] if metric.axis is None else [f"Columns: {metric.axis_label}."]
    return columns + direction_notes(metric)


def seed_notes(cells: Sequence[Cell]) -> list[str]:
    """A note if cells have one seed and therefore no interval."""
    counts = {cell.estimate.n for cell in cells if cell.estimate.n}
    if 1 not in counts:
        return []
    where = "One seed" if counts == {1} else "Where there is one seed"
    return [f"{where}: no interval over seeds, so a difference may be chance."]
