"""Ours beside theirs: each number that a paper prints, our cell, and the difference.

The difference is ours less the published number, and its ± that of ours alone: what the paper says
of its own spread stands beside the number as it is printed, and is not counted. What has no cell in
the sweep is listed, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fope_lab.report.compare.match_cells import CellMatcher, stage_of
from fope_lab.report.compare.published import PublishedTable
from fope_lab.report.render.tables import (
    NOTHING,
    Table,
    TableColumn,
    TableEntry,
    TableRow,
    print_table,
)
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.axes import shorten_labels
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.sweep.graph import Stage

if TYPE_CHECKING:
    from rich.console import Console

_INSIDE = {True: "yes", False: "no", None: NOTHING}
MEANING = (
    "Difference: ours less the published number; ± is half of our 95 % interval over seeds.",
    "Inside: whether our interval holds the published number.",
)


@dataclass(frozen=True)
class ComparedNumber:
    """A published number, in our unit, and the cell that it belongs to.

    `ours` names our row where several of ours stand beside one of theirs; `spread` is printed.
    """

    row: str
    column: str
    ours: str
    published: float
    spread: str | None
    cell: Cell

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self.cell.metric

    @property
    def difference(self) -> float | None:
        """Ours less theirs; None where we have no mean."""
        mean = self.cell.estimate.mean
        return None if mean is None else mean - self.published

    @property
    def inside(self) -> bool | None:
        """Whether the published number lies in our interval; None where there is none."""
        ci95 = self.cell.estimate.ci95
        return None if ci95 is None else ci95[0] <= self.published <= ci95[1]

    @property
    def label(self) -> str:
        """The row, theirs and ours."""
        return f"{self.row} ({self.ours})" if self.ours else self.row

    @property
    def entry(self) -> TableEntry:
        """Our number as an entry of a table."""
        return TableEntry(self.texts[1], False, self.cell)

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Published, ours, difference, and whether our interval holds the published number."""
        write, estimate = self.metric.format, self.cell.estimate
        published = write(self.published) + (f" [{self.spread}]" if self.spread else "")
        if estimate.mean is None or self.difference is None:
            states = dict.fromkeys(gap.state for gap in self.cell.missing)
            ours = "not finite" if self.cell.values else ", ".join(states)
            return published, ours, NOTHING, NOTHING
        ours = write(estimate.mean, estimate.half_width)
        sign = "+" if self.difference >= 0 else "−"
        difference = sign + write(abs(self.difference), estimate.half_width)
        return published, ours, difference, _INSIDE[self.inside]

    def as_json(self) -> dict[str, Any]:
        """What `report --json` gives."""
        ci95 = self.cell.estimate.ci95
        return {
            "row": self.row,
            "column": self.column,
            "stage": self.cell.stage,
            "metric": self.cell.metric.name,
            "x": self.cell.x,
            "embedding": self.cell.embedding,
            "paper": self.published,
            "n": self.cell.estimate.n,
            "mean": self.cell.estimate.mean,
            "ci95": None if ci95 is None else list(ci95),
            "difference": self.difference,
            "inside": self.inside,
        }


@dataclass(frozen=True)
class PaperComparison:
    """A paper's table or figure and what a sweep has of it."""

    published: PublishedTable
    printed: int  # how many numbers the paper prints
    comparisons: tuple[ComparedNumber, ...]
    absent: tuple[str, ...]  # "row, column: reason" of the numbers without a cell
    models: str  # how large ours are and what they were trained at, in words

    @cached_property
    def by_cell(self) -> dict[int, float]:
        """The published number of each cell, in our unit, by the cell's `id`."""
        return {id(one.cell): one.published for one in self.comparisons}

    @property
    def summary(self) -> str:
        """How many numbers are compared, and how many of them our intervals hold."""
        if not self.published.rows:
            return "The paper prints no numbers of it."
        known = [one.inside for one in self.comparisons if one.inside is not None]
        held = f"; of {len(known)} of our intervals {sum(known)} hold theirs" if known else ""
        found = len({(one.row, one.column) for one in self.comparisons})
        return f"{found} of {self.printed} published numbers have a cell in this sweep{held}."

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known to read the table."""
        notes = [self.models, *self.published.notes] if self.models else [*self.published.notes]
        if trained := self.published.trained_length:
            lengths = {one.cell.train_length for one in self.comparisons} - {trained, None}
            if lengths:
                notes.append(
                    f"The published models were trained at {trained:,} tokens: ours stand beside"
                    " them at the same multiple of the length trained at."
                )
        if self.comparisons and self.published.factor != 1:
            notes.append(f"Here the printed numbers are multiplied by {self.published.factor:g}.")
        if any(one.spread for one in self.comparisons):
            notes.append(f"In brackets: {self.published.spread}.")
        return tuple(notes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of which we have something."""
        return tuple(dict.fromkeys(one.column for one in self.comparisons))

    @property
    def lines(self) -> dict[str, dict[str, ComparedNumber]]:
        """The comparisons as in the paper: row → column → comparison."""
        lines: dict[str, dict[str, ComparedNumber]] = {}
        for one in self.comparisons:
            lines.setdefault(one.label, {})[one.column] = one
        return lines

    @property
    def table(self) -> Table:
        """The comparisons one below the other, for a terminal and for Markdown."""
        rows: list[TableRow] = []
        for by_column in self.lines.values():
            for place, one in enumerate(by_column.values()):
                entries = tuple(TableEntry(text, False, None) for text in one.texts)
                labels, seeds = (one.label, one.column), str(one.cell.estimate.n)
                rows.append(TableRow(labels, seeds, entries, bool(rows) and place == 0))
        return Table(
            title=f"{self.published.place}: {self.published.title}",
            labels=("row", "column"),
            columns=tuple(
                TableColumn(name, False) for name in ("published", "ours", "difference", "inside")
            ),
            rows=tuple(rows),
            notes=(*MEANING, *self.notes),
        )

    def as_json(self) -> dict[str, Any]:
        """What `report --json` gives."""
        return {
            "source": self.published.source,
            "title": self.published.title,
            "says": list(self.published.says),
            "comparisons": [one.as_json() for one in self.comparisons],
            "absent": list(self.absent),
        }


def compare_with_paper(
    published: PublishedTable, cells: Sequence[Cell], readings: Sequence[StageResult]
) -> PaperComparison:
    """Find the cell of each published number."""
    by_key = {reading.stage.key: reading for reading in readings}
    placing = CellMatcher(published, cells, by_key)
    found: list[ComparedNumber] = []
    reasons: dict[str, dict[str, str]] = {}
    taken: dict[int, str] = {}
    printed = 0
    for row in published.rows:
        for column in published.all_columns:
            value = published.value(row, column)
            if value is None:
                continue
            printed += 1
            cells_of, reason = placing.cells(row, column)
            names = shorten_labels(cell.embedding or "" for cell in cells_of)
            for cell in cells_of:
                if id(cell) in taken:
                    reason = f"its cell is that of {taken[id(cell)]} already"
                    continue
                taken[id(cell)] = f"{row.label}, {column.label}"
                ours = names[cell.embedding or ""] if len(cells_of) > 1 else ""
                spread = published.spread_of(row, column)
                shown = None if spread is None else f"{spread:g}"
                found.append(ComparedNumber(row.label, column.label, ours, value, shown, cell))
            if reason:
                reasons.setdefault(row.label, {})[column.label] = reason
    stages = [stage_of(one.cell, by_key) for one in found]
    return PaperComparison(
        published=published,
        printed=printed,
        comparisons=tuple(found),
        absent=tuple(_absent(reasons, published)),
        models=_models([one.cell for one in found], stages),
    )


def _models(cells: Sequence[Cell], stages: Sequence[Stage]) -> str:
    """What has to be known of our models before their numbers are held against others'."""
    sizes = sorted({stage.cost.parameters.total for stage in stages if stage.cost.parameters})
    lengths = sorted({cell.train_length for cell in cells if cell.train_length})
    said = []
    if sizes:
        several = f" to {sizes[-1]:,}" if len(sizes) > 1 else ""
        said.append(f"have {sizes[0]:,}{several} parameters")
    if lengths:
        said.append(f"were trained at {' and '.join(f'{length:,}' for length in lengths)} tokens")
    return f"Our models {' and '.join(said)}." if said else ""


def _absent(reasons: Mapping[str, Mapping[str, str]], published: PublishedTable) -> Iterator[str]:
    """The reasons; once a row, and once a column, where they are the same for all of it."""
    columns = [column.label for column in published.all_columns]
    whole = [row for row, by in reasons.items() if len(by) == len(columns) and _one(by.values())]
    for row in whole:
        yield f"{row}: {_one(reasons[row].values())}"
    others = {row: by for row, by in reasons.items() if row not in whole}
    expected = len(published.rows) - len(whole)
    for column in columns:
        found = {row: by[column] for row, by in others.items() if column in by}
        reason = _one(found.values())
        if reason and len(found) == expected and expected > 1:
            yield f"{column}, in all {'other ' if whole else ''}rows: {reason}"
        else:
            yield from (f"{row}, {column}: {why}" for row, why in found.items())


def _one(reasons: Collection[str]) -> str | None:
    """The reason that all have."""
    return next(iter(reasons)) if len(set(reasons)) == 1 else None


def print_paper_comparison(beside: PaperComparison, console: Console) -> None:
    """The comparisons as a table, and what has none, for people."""

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line(f"Beside {beside.published.source}: {beside.summary}")
    if beside.comparisons:
        print_table(beside.table, console)
    for text in beside.absent:
        line(f"  {text}")
