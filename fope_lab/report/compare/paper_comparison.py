"""Compare a paper's published numbers with the cells of a sweep.

A difference is our mean minus the published number. Its interval is the interval of our mean over
seeds: a spread that the paper prints is shown, but does not enter the difference. Published numbers
without a cell in the sweep are listed with the reason.

Conditions on a cell's model apply to its axes, then to the settings of its stage, then to those of
the trainings before it, then to the sizes of its model. A label with options requires these and
allows others: `yarn(factor=4)` matches `yarn(base=330,factor=4)`, and `rope` matches
`rope(base=330)`. If several cells match, those with exactly the label win, then those with the
fewest options beside the required ones. If the published table gives its training length, context
lengths match as multiples of the training length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fope_lab.report.compare.published import PublishedColumn, PublishedRow, PublishedTable
from fope_lab.report.results.cells import Cell, CellKey, StageResult, by_key
from fope_lab.report.results.layout import shorten_labels
from fope_lab.stages.labels import corpus_label, label, label_parts, leaves, stage_label
from fope_lab.stages.metric import LENGTH


@dataclass(frozen=True)
class ComparedNumber:
    """A published number, in our unit, and the cell of the sweep that measures the same. `ours`
    names our row if several of our rows belong to one published row. `spread` is as printed."""

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
    """Each reason once for the columns of a row that have it, and without them if all have it."""
    for row, by_column in reasons.items():
        columns: dict[str, list[str]] = {}
        for column, reason in by_column.items():
            columns.setdefault(reason, []).append(column)
        for reason, of in columns.items():
            every = len(of) == len(published.all_columns)
            yield f"{row if every else ', '.join([row, *of])}: {reason}"


NOT_IN_SWEEP = "not part of this sweep"
NO_RESULT_YET = "no result yet"


class CellMatcher:
    """Finds the cells that measure the numbers of one published table."""

    def __init__(
        self, published: PublishedTable, cells: Sequence[Cell], results: Mapping[str, StageResult]
    ) -> None:
        self._published, self._cells, self._results = published, cells, results
        self._columns = {  # of the table, by section
            section: sum(
                any(cell.section == section and self._measures(cell, column) for cell in cells)
                for column in published.all_columns
            )
            for section in dict.fromkeys(cell.section for cell in cells)
        }

    def cells(self, row: PublishedRow, column: PublishedColumn) -> tuple[list[Cell], str]:
        """Return the matching cells, one for each model that the number stands for, and a reason.
        The reason explains why there is no cell, or why a cell is missing; it may be empty."""
        wanted = {**row.where, **column.where}
        cells, reasons = [], []
        for conditions in _combinations(wanted):
            matches = self._matches(column, conditions)
            if len(matches) == 1:
                cells += matches
            elif matches:
                names = dict.fromkeys(stage_label(c.section, c.axes, None) for c in matches)
                reasons.append(f"several rows of this sweep match: {'; '.join(names)}")
        if not cells and not reasons:
            reasons.append(NO_RESULT_YET if self._may_come(wanted, column) else NOT_IN_SWEEP)
        return cells, "; ".join(dict.fromkeys(reasons))

    def _matches(self, column: PublishedColumn, conditions: Mapping[str, str]) -> list[Cell]:
        """The cells of a column that match best, in the section that has most of the columns."""
        ranked: list[tuple[tuple[int, ...], Cell]] = []
        for cell in self._cells:
            if self._measures(cell, column):
                setting = self._published.setting.items()
                on_axes = {
                    name: s[0] for name, s in setting if any(_ends(p, name) for p in cell.axes)
                }
                closeness = self._closeness(cell.keys[0], {**conditions, **on_axes})
                if closeness is not None and self._reads(cell.keys[0], column.corpus):
                    ranked.append(((self._columns[cell.section], *closeness), cell))
        best = max((rank for rank, _ in ranked), default=None)
        return [cell for rank, cell in ranked if rank == best]

    def _measures(self, cell: Cell, column: PublishedColumn) -> bool:
        if cell.metric.name != column.metric or cell.x is None or column.x is None:
            return (cell.metric.name, cell.x) == (column.metric, column.x)
        published_length, our_length = self._published.trained_length, cell.trained_length
        if not (published_length and our_length and cell.metric.axis == LENGTH):
            return cell.x == column.x
        return cell.x * published_length == column.x * our_length

    def _may_come(self, wanted: Mapping[str, Sequence[str]], column: PublishedColumn) -> bool:
        """Whether a stage that is not done yet may measure a column that no cell has."""
        return not any(cell.metric.name == column.metric for cell in self._cells) and any(
            self._closeness(key, conditions) is not None
            for key, result in self._results.items()
            if not result.state.is_done
            and column.metric in result.metrics
            and self._reads(key, column.corpus)
            for conditions in _combinations(wanted)
        )

    def _reads(self, key: str, corpus: str | None) -> bool:
        """Whether a stage reads the corpus with this label; any stage does if it is None."""
        corpora = self._results[key].stage.spec.corpora().values()
        return corpus is None or corpus in map(corpus_label, corpora)

    def _closeness(self, key: str, conditions: Mapping[str, str]) -> tuple[int, int] | None:
        """How many conditions a stage meets to the letter, and minus the number of its other
        options; None if it fails one.
        """
        exact = further = 0
        for name, wanted in conditions.items():
            values = self._values(key, name)
            if not values or not all(label_matches(wanted, value) for value in values):
                return None
            exact += all(wanted == value for value in values)
            further += sum(len(label_parts(value)[1] - label_parts(wanted)[1]) for value in values)
        return exact, -further

    def _values(self, key: str, name: str) -> list[str]:
        """The labels of the axes with a name; without such an axis, that of the nearest setting."""
        stage = self._results[key].stage
        on_axes = [label(value) for path, value in stage.axes.items() if _ends(path, name)]
        if on_axes:
            return on_axes
        if name in ("embedding", "scale"):
            return [value] if (value := getattr(stage, name)) is not None else []
        for settings in self._settings(key):
            if values := [label(value) for path, value in leaves(settings) if _ends(path, name)]:
                return values
        return []

    def _settings(self, key: str) -> Iterator[Mapping[str, Any]]:
        """Those of a stage and of the trainings before it, then the sizes of its model."""
        model = self._results[key].stage.model_spec
        at: str | None = key
        while at is not None and at in self._results:
            yield self._results[at].stage.config
            at = self._results[at].model_parent
        if model is not None:
            yield dataclasses.asdict(model.model)


def label_matches(wanted: str, value: str) -> bool:
    """Whether a value has the name of the wanted label and all of its options."""
    name, options = label_parts(wanted)
    value_name, value_options = label_parts(value)
    return name == value_name and options <= value_options


def _combinations(wanted: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """A label for each name, in every combination."""
    return (dict(zip(wanted, labels, strict=True)) for labels in product(*wanted.values()))


def _ends(path: str, name: str) -> bool:
    return f".{path}".replace(" ", "_").endswith(f".{name.replace(' ', '_')}")
