"""The tables of a report: one structure, rendered for a terminal, as plain text, and in HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fope_lab.report.compare.comparability_marks import MARK, comparability_marks
from fope_lab.report.compare.training_history import TrainingHistory
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.layout import MetricGroup
from fope_lab.stages.result import Measurement

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = "–"
MOST_COLUMNS = 16
GUESSING = "Guessing gives"


@dataclass(frozen=True)
class TableColumn:
    """A column of numbers."""

    label: str
    trained: bool  # the length that models of this table were trained at


@dataclass(frozen=True)
class TableEntry:
    """A table entry: what is shown, and the cell behind it (None: not asked for)."""

    text: str
    best: bool
    cell: Cell | None
    unequal: tuple[str, ...] = ()  # in what its models differ from those it stands beside

    @property
    def marked(self) -> str:
        """The text, and the mark of models that may not be compared."""
        return f"{self.text}{MARK}" if self.unequal else self.text

    @property
    def title(self) -> str:
        """Every seed's value and key in words, for whoever points at the entry."""
        if self.cell is None:
            return "not part of this sweep"
        values = [
            f"seed {v.seed}: {v.value!r}"
            + ("" if v.measured.stderr is None else f", standard error {v.measured.stderr:.3g}")
            + (
                ""
                if v.measured.ci95 is None
                else ", 95 % of it in [{:.4g}, {:.4g}]".format(*v.measured.ci95)
            )
            + f" ({v.key})"
            for v in self.cell.values
        ]
        missing = [f"seed {m.seed}: {m.state}: {m.reason} ({m.key})" for m in self.cell.missing]
        unequal = [f"{MARK} {words}" for words in self.unequal]
        return "\n".join(values + missing + unequal)


@dataclass(frozen=True)
class TableRow:
    """A row: its axes' values, its entries, and how many of the seeds asked for are in it."""

    labels: tuple[str, ...]
    seeds: str
    entries: tuple[TableEntry, ...]
    starts_panel: bool


@dataclass(frozen=True)
class Table:
    """A table: one metric of one stage."""

    title: str
    labels: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]

    @property
    def has_best(self) -> bool:
        """Whether an entry stands out."""
        return any(entry.best for row in self.rows for entry in row.entries)

    @property
    def has_unequal(self) -> bool:
        """Whether an entry may not be compared."""
        return any(entry.unequal for row in self.rows for entry in row.entries)


def build_table(block: MetricGroup, histories: Mapping[str, TrainingHistory]) -> Table:
    """The table of a block: a row for each line, a column for each x. By the histories of the
    models, rows that may not be compared with the others are marked."""
    xs = shown_xs(block)
    trained = set(block.train_lengths) if block.metric.x == "length" else set()
    per_row = len(trained) > 1
    best = _best(block)
    unequal = comparability_marks(block, histories)
    rows = []
    previous = None
    for lines in block.panels.values():
        for line in lines:
            labels = line.axis_values or (line.label,)
            if per_row:
                labels = (*labels, str(line.train_length or NOTHING))
            words = unequal.lines.get(id(line), ())
            entries = tuple(_entry(block, line.cells.get(x), best, words) for x in xs)
            seeds = f"{line.done}" if line.done == line.asked else f"{line.done} of {line.asked}"
            new = previous is not None and line.panel != previous
            rows.append(TableRow(labels, seeds, entries, new))
            previous = line.panel
    return Table(
        title=block.title,
        labels=(block.axes or ("model",)) + (("trained at",) if per_row else ()),
        columns=tuple(TableColumn("value" if x is None else f"{x}", x in trained) for x in xs),
        rows=tuple(rows),
        notes=(*_notes(block, bool(best)), *filter(None, [unequal.note])),
    )


def shown_xs(block: MetricGroup) -> tuple[int | None, ...]:
    """The columns: every x, or of more than fit, some at equal steps, the first and the last."""
    xs = block.xs
    if len(xs) <= MOST_COLUMNS:
        return xs
    places = {round(i * (len(xs) - 1) / (MOST_COLUMNS - 1)) for i in range(MOST_COLUMNS)}
    return tuple(xs[place] for place in sorted(places))


def print_table(table: Table, console: Console) -> None:
    """Print for people: a rich table on a terminal, aligned plain text anywhere else."""
    if not console.is_terminal:
        console.print(plain_text(table), markup=False, highlight=False, soft_wrap=True)
        return
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD
    )
    for label in table.labels:
        shown.add_column(Text(label))
    shown.add_column(Text("seeds"), justify="right")
    for column in table.columns:
        style = "underline" if column.trained else ""
        shown.add_column(Text(header_of(column), style=style), justify="right")
    for i, row in enumerate(table.rows):
        entries = [
            Text(_marked(table, entry), style="bold green" if entry.best else "")
            for entry in row.entries
        ]
        ends_panel = i + 1 < len(table.rows) and table.rows[i + 1].starts_panel
        shown.add_row(*map(Text, row.labels), Text(row.seeds), *entries, end_section=ends_panel)
    console.print(shown)
    console.print(Text(legend_of(table), style="dim"))


def plain_text(table: Table) -> str:
    """The table as lines of text; * marks the best of a column, † the trained length."""
    header = [*table.labels, "seeds", *map(header_of, table.columns)]
    body = [
        [*row.labels, row.seeds, *(_marked(table, entry) for entry in row.entries)]
        for row in table.rows
    ]
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    left = len(table.labels)
    lines = [
        "  ".join(
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *body]
    ]
    rule = "-" * max(map(len, lines))
    return "\n".join([table.title, rule, lines[0], rule, *lines[1:], rule, legend_of(table)])


def header_of(column: TableColumn) -> str:
    """A column's label, with the mark of the length trained at."""
    return f"{column.label}†" if column.trained else column.label


def _marked(table: Table, entry: TableEntry) -> str:
    """An entry with its marks; those without keep the marks' room, to stay aligned."""
    text = entry.marked if entry.unequal or not table.has_unequal else f"{entry.text} "
    if not table.has_best:
        return text
    return f"{text} *" if entry.best else f"{text}  "


def legend_of(table: Table) -> str:
    """What the marks of a table mean, and its notes."""
    marks = ["* best mean of its column."] if table.has_best else []
    if any(column.trained for column in table.columns):
        marks.append("† the length trained at.")
    return " ".join([*marks, *table.notes])


def _entry(
    block: MetricGroup, cell: Cell | None, best: set[int], unequal: tuple[str, ...]
) -> TableEntry:
    if cell is None:
        return TableEntry(NOTHING, False, None)
    return TableEntry(cell_text(block, cell), id(cell) in best, cell, unequal)


def cell_text(block: MetricGroup, cell: Cell) -> str:
    """Mean ± half width; the odd value where there is no mean; the state where there is none."""
    write = block.metric.format
    estimate = cell.estimate
    if not cell.values:
        states = dict.fromkeys(m.state for m in cell.missing)
        return ", ".join(states) or NOTHING
    if estimate.mean is None:
        odd = [v.value for v in cell.values if not math.isfinite(v.value)]
        if len(cell.values) == 1:
            return write(odd[0])
        return f"{write(odd[0])} in {len(odd)} of {len(cell.values)}"
    if estimate.half_width is None and cell.single is not None:
        return write(estimate.mean) + _sampling(block, cell.single)
    return write(estimate.mean, estimate.half_width)


def _sampling(block: MetricGroup, one: Measurement) -> str:
    """What is known of the error of one evaluation, in brackets."""
    if one.stderr is not None:
        return f" (se {block.metric.format_error(one.value, one.stderr)})"
    if one.ci95 is not None:
        low, high = (block.metric.format_error(one.value, end) for end in one.ci95)
        return f" ({low}–{high})"
    return ""


def _best(block: MetricGroup) -> set[int]:
    """Identities of the cells with the best mean of their column and panel, as it is written.

    A cell that shows the same digits as the best is as good: nobody could see the difference.
    """
    if block.metric.better is None:
        return set()
    choose = min if block.metric.better == "lower" else max
    best: set[int] = set()
    for lines in block.panels.values():
        for x in shown_xs(block):
            cells = [line.cells[x] for line in lines if x in line.cells]
            means = [c.estimate.mean for c in cells if c.estimate.mean is not None]
            if len(means) < 2:
                continue
            text = block.metric.format(choose(means))
            winners = [
                c
                for c in cells
                if c.estimate.mean is not None and block.metric.format(c.estimate.mean) == text
            ]
            if len(winners) < len(means):  # where all are equal, none stands out
                best.update(map(id, winners))
    return best


def _notes(block: MetricGroup, has_best: bool) -> list[str]:
    notes = []
    if block.metric.x is not None:
        notes.append(f"Columns: {block.metric.x_label}.")
    if block.metric.better is not None:
        notes.append(f"{block.metric.better.capitalize()} is better.")
    if has_best and block.panel_axes:
        notes.append(f"The best is that of rows with the same {' and '.join(block.panel_axes)}.")
    if block.shared:
        notes.append(f"The same in all rows: {'; '.join(block.shared)}.")
    if len(shown_xs(block)) < len(block.xs):
        notes.append(f"{len(shown_xs(block))} of {len(block.xs)} columns; the JSON has all.")
    if block.chance is not None:
        notes.append(f"{GUESSING} {block.metric.format(block.chance)}.")
    cells = [cell for line in block.lines for cell in line.cells.values()]
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("±: half of the 95 % interval over seeds (Student's t).")
    notes += _sampling_notes([cell.single for cell in cells if cell.single])
    if any(cell.values and cell.estimate.mean is None for cell in cells):
        notes.append("Where a value is not finite there is no mean; all values are in the JSON.")
    return notes + seed_notes(cells)


def _sampling_notes(single: Sequence[Measurement]) -> list[str]:
    """What stands in brackets."""
    notes = []
    if any(one.stderr is not None for one in single):
        notes.append("(se …): the standard error, over what one evaluation read.")
    if any(one.stderr is None and one.ci95 is not None for one in single):
        notes.append("(low–high): the 95 % interval (Wilson's), over what one evaluation read.")
    return notes


def seed_notes(cells: Sequence[Cell]) -> list[str]:
    """Where there are no intervals, why."""
    counts = {cell.estimate.n for cell in cells if cell.estimate.n}
    if 1 not in counts:
        return []
    where = "One seed" if counts == {1} else "Where there is one seed"
    return [f"{where}: no interval over seeds, so a difference here may be chance."]
