"""Which cell of a sweep a published number belongs to.

A condition names an axis by the end of its path (`embedding`, `qk_norm`, `data.length`). A sweep
without such an axis has one value of it: that of the stage's own settings, of the trainings that it
comes from, or of its model's sizes. A label with options wants these, and leaves others open:
`yarn(factor=4)` is also `yarn(base=330,factor=4)`, and `rope` also `rope(base=330)`; where several
cells fit, those with exactly the label go before. A context length counts as a multiple of the
length trained at, where the table says what that was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.report.compare.published import PublishedColumn, PublishedRow, PublishedTable
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import corpus_label, label, label_parts, stage_label
from fope_lab.sweep.graph import Stage

ELSEWHERE = "not part of this sweep"
NOT_YET = "no result yet"


class CellMatcher:
    """Finds cells for the numbers of one table."""

    def __init__(
        self,
        published: PublishedTable,
        cells: Sequence[Cell],
        readings: Mapping[str, StageResult],
    ) -> None:
        self._published, self._cells, self._readings = published, cells, readings
        self._columns = {
            stage: sum(
                any(c.stage == stage and self._is_at(c, one) for c in cells)
                for one in published.all_columns
            )
            for stage in dict.fromkeys(cell.stage for cell in cells)
        }

    def cells(self, row: PublishedRow, column: PublishedColumn) -> tuple[list[Cell], str]:
        """The cells beside a number, one for each of the models that it is said of, and why there
        is none, or not the one that was meant."""
        wanted = {**row.where, **column.where}
        found, reasons = [], []
        for labels in product(*wanted.values()):
            fitting = self._fitting(column, dict(zip(wanted, labels, strict=True)))
            if len(fitting) == 1:
                found += fitting
            elif fitting:
                names = "; ".join(dict.fromkeys(map(_told_by, fitting)))
                reasons.append(f"several rows of this sweep fit: {names}")
        if not found and not reasons:
            reasons.append(NOT_YET if self._may_come(wanted, column) else ELSEWHERE)
        return found, "; ".join(dict.fromkeys(reasons))

    def _fitting(self, column: PublishedColumn, conditions: Mapping[str, str]) -> list[Cell]:
        """The cells of a column's metric that meet the conditions best, of the stage that has most
        of the table's columns."""
        found: list[tuple[tuple[int, int], Cell]] = []
        for cell in self._cells:
            if not self._is_at(cell, column):
                continue
            stage = stage_of(cell, self._readings)
            exact = fit(stage, self._readings, {**conditions, **self._setting(cell.axes)})
            if exact is not None and reads(stage, column.corpus):
                found.append(((self._columns[cell.stage], exact), cell))
        best = max((rank for rank, _ in found), default=None)
        return [cell for rank, cell in found if rank == best]

    def _is_at(self, cell: Cell, column: PublishedColumn) -> bool:
        """Whether a cell is of a column's metric, at its point."""
        if cell.metric.name != column.metric or cell.x is None or column.x is None:
            return (cell.metric.name, cell.x) == (column.metric, column.x)
        theirs, ours = self._published.trained_length, cell.train_length
        if not (theirs and ours and cell.metric.x == "length"):
            return cell.x == column.x
        return cell.x * theirs == column.x * ours

    def _setting(self, axes: Mapping[str, Any]) -> dict[str, str]:
        setting = self._published.setting
        return {name: labels[0] for name, labels in setting.items() if has_axis(axes, name)}

    def _may_come(self, wanted: Mapping[str, Sequence[str]], column: PublishedColumn) -> bool:
        """Whether an evaluation that is not done yet could measure it: which metrics it has is
        known once one of its kind is done."""
        if any(cell.metric.name == column.metric for cell in self._cells):
            return False
        waiting = [r.stage for r in self._readings.values() if not r.state.is_done]
        return any(
            isinstance(stage.spec, ModelEvaluation)
            and reads(stage, column.corpus)
            and fit(stage, self._readings, dict(zip(wanted, labels, strict=True))) is not None
            for labels in product(*wanted.values())
            for stage in waiting
        )


def has_axis(axes: Mapping[str, Any], name: str) -> bool:
    """Whether an axis goes by a name."""
    return any(_ends(path, name) for path in axes)


def fit(
    stage: Stage, readings: Mapping[str, StageResult], conditions: Mapping[str, str]
) -> int | None:
    """How many of the conditions a stage meets to the letter, if it meets all; else None."""
    exact = 0
    for name, wanted in conditions.items():
        found = values_of(stage, readings, name)
        if not found or not all(is_like(wanted, value) for value in found):
            return None
        exact += all(wanted == value for value in found)
    return exact


def values_of(stage: Stage, readings: Mapping[str, StageResult], name: str) -> list[str]:
    """The labels of the axes that go by a name, or of the one setting that does."""
    on_axes = [label(value) for path, value in stage.axes.items() if _ends(path, name)]
    if on_axes:
        return on_axes
    if name in ("embedding", "scale"):
        return [found] if (found := getattr(stage, name)) is not None else []
    for settings in _settings(stage, readings):
        found = [label(value) for path, value in _flat(settings) if _ends(path, name)]
        if found:
            return found
    return []


def is_like(wanted: str, found: str) -> bool:
    """Whether a label is the wanted one, or has its options and others beside them."""
    name, options = label_parts(wanted)
    other, others = label_parts(found)
    return name == other and options <= others


def reads(stage: Stage, corpus: str | None) -> bool:
    """Whether a stage reads a corpus; any does where none is asked for."""
    return corpus is None or any(
        corpus_label(one) == corpus for one in stage.spec.corpora().values()
    )


def stage_of(cell: Cell, readings: Mapping[str, StageResult]) -> Stage:
    """One of a cell's stages, which differ by their seed only."""
    return readings[cell.keys[0]].stage


def _told_by(cell: Cell) -> str:
    """A cell's place in the sweep."""
    return stage_label(cell.stage, cell.axes, None)


def _ends(path: str, name: str) -> bool:
    return f".{path}".replace(" ", "_").endswith(f".{name.replace(' ', '_')}")


def _settings(stage: Stage, readings: Mapping[str, StageResult]) -> Iterator[Mapping[str, Any]]:
    """The settings of a stage, of what it comes from, the last first, and its model's sizes."""
    at: Stage | None = stage
    while at is not None:
        yield at.config
        parent = readings.get(at.parents.get("from", ""))
        at = parent.stage if parent is not None else None
    if stage.model_spec is not None:
        yield dataclasses.asdict(stage.model_spec.model)


def _flat(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        inner = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            yield from _flat(value, inner)
        else:
            yield inner, value
