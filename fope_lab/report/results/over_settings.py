"""Numbers over a setting of a training, such as the learning rate, one series for each method.

A training stage that has several values on a numeric axis under `train` has a group for its
validation loss, and one for each metric by which evaluations have measured all of its models. Of a
metric by length these are at the trained length and at the longest. Where each method has one value
of its own, nothing is over the setting, and there is no group.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.aggregate import Cell, json_value
from fope_lab.report.results.axes import read_axes
from fope_lab.report.results.stage_results import StageResult, chosen_keys
from fope_lab.stages import Select
from fope_lab.stages.metric import LENGTH, Metric

LOSSES = ("validation_loss", "loss")
"""The metrics of a training that a group may be of; the first that it has is shown."""


@dataclass(frozen=True)
class SettingPoint:
    """The cell of one value of the setting; `chosen` says whether a selection took it."""

    value: float
    cell: Cell
    chosen: bool


@dataclass(frozen=True)
class SettingSeries:
    """One combination of the other axes, over the values of the setting in rising order."""

    label: str
    panel: str
    axis_values: tuple[str, ...]
    points: tuple[SettingPoint, ...]


@dataclass(frozen=True)
class SettingGroup:
    """One metric of a section, at `x` if it is a curve, over the values of a setting.

    `trained` is the section whose setting it is; `by` names what the selection went by, or is None
    if there is none.
    """

    trained: str
    setting: str
    section: str
    metric: Metric
    x: int | None
    axes: tuple[str, ...]
    series: tuple[SettingSeries, ...]
    by: str | None

    @property
    def name(self) -> str:
        """The name of the setting, such as learning rate."""
        return self.setting.rpartition(".")[2].replace("_", " ")

    @property
    def values(self) -> tuple[float, ...]:
        """Every value of the setting, in rising order."""
        return tuple(sorted({point.value for series in self.series for point in series.points}))

    @property
    def title(self) -> str:
        """Such as "Perplexity at 64 by learning rate (perplexity)"."""
        words = self.metric.label[:1].upper() + self.metric.label[1:]
        at = "" if self.x is None else f" at {self.x}"
        return f"{words}{at} by {self.name} ({self.section})"


def group_over_settings(
    cells: Sequence[Cell], results: Sequence[StageResult]
) -> tuple[SettingGroup, ...]:
    """Every group, in the order of the cells."""
    trained = {r.stage.section for r in results if r.stage.spec.trains}
    chosen = chosen_keys(results)
    rules = dict(_rules(results))
    groups = []
    for axis in _axes(cells, trained):
        of_axis = [cell for cell in cells if _is_number(cell.axes.get(axis))]
        for section, metric, x in _shown(of_axis, axis.partition(".")[0]):
            members = [
                c for c in of_axis if (c.section, c.metric.name, c.x) == (section, metric, x)
            ]
            group = _group(axis, members, chosen, rules.get(axis))
            if any(len(series.points) > 1 for series in group.series):
                groups.append(group)
    return tuple(groups)


def _rules(results: Iterable[StageResult]) -> Iterator[tuple[str, str]]:
    """The axes that are selected over, and by what."""
    sections = {result.stage.key: result.stage.section for result in results}
    for result in results:
        if isinstance(spec := result.stage.spec, Select):
            section = next(
                (sections[k] for k in result.stage.parents.values() if k in sections), ""
            )
            yield f"{section}.{spec.over}", spec.by


def _axes(cells: Iterable[Cell], trained: Iterable[str]) -> list[str]:
    """The axes that set numbers under `train` of stages that train, if they have several values."""
    values: dict[str, set[float]] = {}
    for cell in cells:
        for axis, value in cell.axes.items():
            section, _, field = axis.partition(".")
            if section in trained and field.startswith("train.") and _is_number(value):
                values.setdefault(axis, set()).add(value)
    return [axis for axis, found in values.items() if len(found) > 1]


def _shown(cells: Sequence[Cell], trained: str) -> list[tuple[str, str, int | None]]:
    """The section, metric and x of each group."""
    own = {cell.metric.name for cell in cells if cell.section == trained}
    loss = next((name for name in LOSSES if name in own), None)
    points: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        is_loss = cell.section == trained and cell.metric.name == loss
        shown = cell.metric.shown_as is None and cell.metric.axis in (None, LENGTH)
        is_measured = cell.section != trained and not cell.metric.name.endswith("loss") and shown
        if is_loss or is_measured:
            points.setdefault((cell.section, cell.metric.name), []).append(cell)
    found: list[tuple[str, str, int | None]] = []
    for (section, metric), members in points.items():
        xs = sorted({cell.x for cell in members if cell.x is not None})
        lengths = {cell.trained_length for cell in members}
        ends: list[int | None] = [x for x in xs if x in lengths or x == xs[-1]]
        found += [(section, metric, x) for x in ends or [None]]
    return found


def _group(
    axis: str, cells: Sequence[Cell], chosen: frozenset[str], by: str | None
) -> SettingGroup:
    without = [
        dataclasses.replace(c, axes={k: v for k, v in c.axes.items() if k != axis}) for c in cells
    ]
    axes = read_axes(without)
    rows: dict[str, list[tuple[Cell, Cell]]] = {}
    for cell, other in zip(cells, without, strict=True):
        rows.setdefault(_text(other.axes), []).append((cell, other))
    first = cells[0]
    return SettingGroup(
        trained=axis.partition(".")[0],
        setting=axis,
        section=first.section,
        metric=first.metric,
        x=first.x,
        axes=tuple(axes.names[path] for path in axes.varying),
        series=tuple(
            SettingSeries(
                label=axes.label(row[0][1], first.section),
                panel=axes.panel(row[0][1]),
                axis_values=axes.values(row[0][1]),
                points=tuple(
                    SettingPoint(cell.axes[axis], cell, not chosen.isdisjoint(cell.keys))
                    for cell, _ in sorted(row, key=lambda pair: pair[0].axes[axis])
                ),
            )
            for row in rows.values()
        ),
        by=by,
    )


def _text(axes: Mapping[str, Any]) -> str:
    return json.dumps(json_value(axes), sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
