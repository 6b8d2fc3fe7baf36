"""Compare a paper's published numbers with the cells of a sweep.

A difference is our mean minus the published number. Its interval is the interval of our mean over
seeds: a spread that the paper prints is shown, but does not enter the difference. Published numbers
without a cell in the sweep are listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.compare.match_cells import CellMatcher
from fope_lab.report.compare.published import PublishedTable
from fope_lab.report.results.aggregate import Cell, CellKey
from fope_lab.report.results.axes import shorten_labels
from fope_lab.report.results.stage_results import StageResult, by_key


@dataclass(frozen=True)
class ComparedNumber:
    """A published number, in our unit, and the cell of the sweep that measures the same.

    `ours` names our row if several of our rows belong to one published row. `spread` is as printed.
    """

    row: str
    column: str
    ours: str
    published: float
    spread: str | None
    cell: Cell

    @property
    def difference(self) -> float | None:
        mean = self.cell.estimate.mean
        return None if mean is None else mean - self.published

    @property
    def inside(self) -> bool | None:
        ci95 = self.cell.estimate.ci95
        return None if ci95 is None else ci95[0] <= self.published <= ci95[1]

    @property
    def label(self) -> str:
        return f"{self.row} ({self.ours})" if self.ours else self.row


@dataclass(frozen=True)
class PaperComparison:
    """A published table or figure, and the cells of a sweep that measure the same."""

    published: PublishedTable
    printed: int  # the number of published numbers
    numbers: tuple[ComparedNumber, ...]
    absent: tuple[str, ...]  # "row, column: reason" of the published numbers without a cell
    models: str  # a sentence on the size and the training length of our models

    @property
    def by_cell(self) -> dict[CellKey, float]:
        """The published number of each cell, in our unit."""
        return {number.cell.key: number.published for number in self.numbers}

    @property
    def summary(self) -> str:
        if not self.published.rows:
            return "The paper prints no numbers for it."
        inside = [number.inside for number in self.numbers if number.inside is not None]
        compared = len({(number.row, number.column) for number in self.numbers})
        return f"{compared} of {self.printed} published numbers have a cell in this sweep" + (
            f"; our intervals contain {sum(inside)} of {len(inside)}." if inside else "."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [self.models, *self.published.notes] if self.models else [*self.published.notes]
        if trained := self.published.trained_length:
            lengths = {number.cell.trained_length for number in self.numbers} - {trained, None}
            if lengths:
                notes.append(
                    f"The published models were trained at {trained:,} tokens: each number is"
                    " compared with ours at the same multiple of the training length."
                )
        if self.numbers and self.published.factor != 1:
            notes.append(f"The printed numbers are multiplied by {self.published.factor:g} here.")
        if any(number.spread for number in self.numbers):
            notes.append(f"In brackets: {self.published.spread}.")
        return tuple(notes)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(number.column for number in self.numbers))

    @property
    def rows(self) -> dict[str, dict[str, ComparedNumber]]:
        rows: dict[str, dict[str, ComparedNumber]] = {}
        for number in self.numbers:
            rows.setdefault(number.label, {})[number.column] = number
        return rows


def compare_with_paper(
    published: PublishedTable, cells: Sequence[Cell], results: Sequence[StageResult]
) -> PaperComparison:
    """Find the cells that measure each published number."""
    stages = by_key(results)
    matcher = CellMatcher(published, cells, stages)
    numbers: list[ComparedNumber] = []
    reasons: dict[str, dict[str, str]] = {}
    taken: dict[CellKey, str] = {}
    printed = 0
    for row in published.rows:
        for column in published.all_columns:
            value = published.value(row, column)
            if value is None:
                continue
            printed += 1
            matches, reason = matcher.cells(row, column)
            names = shorten_labels(cell.embedding or "" for cell in matches)
            for cell in matches:
                if cell.key in taken:
                    reason = f"its cell is already compared with {taken[cell.key]}"
                    continue
                taken[cell.key] = f"{row.label}, {column.label}"
                ours = names[cell.embedding or ""] if len(matches) > 1 else ""
                spread = published.spread_of(row, column)
                shown = None if spread is None else f"{spread:g}"
                numbers.append(ComparedNumber(row.label, column.label, ours, value, shown, cell))
            if reason:
                reasons.setdefault(row.label, {})[column.label] = reason
    absent = tuple(_absent(reasons, published))
    ours = _models([number.cell for number in numbers], stages)
    return PaperComparison(published, printed, tuple(numbers), absent, ours)


def _models(cells: Sequence[Cell], results: Mapping[str, StageResult]) -> str:
    """A sentence on the size and the training length of our models; empty if neither is known."""
    known = (results[cell.keys[0]].stage.cost.parameters for cell in cells)
    sizes = sorted({parameters.total for parameters in known if parameters})
    lengths = sorted({cell.trained_length for cell in cells if cell.trained_length})
    parts = []
    if sizes:
        largest = f" to {sizes[-1]:,}" if len(sizes) > 1 else ""
        parts.append(f"have {sizes[0]:,}{largest} parameters")
    if lengths:
        parts.append(f"were trained at {' and '.join(f'{length:,}' for length in lengths)} tokens")
    return f"Our models {' and '.join(parts)}." if parts else ""


def _absent(reasons: Mapping[str, Mapping[str, str]], published: PublishedTable) -> Iterator[str]:
    """The reasons, once for a row or a column if all of its numbers have the same reason."""
    columns = [column.label for column in published.all_columns]
    whole = [
        row for row, by in reasons.items() if len(by) == len(columns) and len(set(by.values())) == 1
    ]
    yield from (f"{row}: {reasons[row][columns[0]]}" for row in whole)
    others = {row: by for row, by in reasons.items() if row not in whole}
    expected = len(published.rows) - len(whole)
    for column in columns:
        by_row = {row: by[column] for row, by in others.items() if column in by}
        if len(by_row) == expected > 1 and len(set(by_row.values())) == 1:
            [reason] = set(by_row.values())
            yield f"{column}, in all {'other ' if whole else ''}rows: {reason}"
        else:
            yield from (f"{row}, {column}: {why}" for row, why in by_row.items())
