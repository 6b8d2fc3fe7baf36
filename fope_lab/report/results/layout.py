"""Arrange cells into the groups and series that tables, figures and the summary show.

A metric group holds one metric of one section of the sweep file. Each of its series is one
combination of the axes' values: a row of a table, a curve of a figure. If embeddings are compared
under several settings, such as several scales, the settings divide the series into panels. Only
series of the same panel are compared with each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.stage_results import StageResult, group_by_section
from fope_lab.stages.labels import tokenizer_label
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.sweep.claims.grammar import parse_quantity
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.graph import Stage

GroupKey = tuple[str, str]
"""The section of the sweep file and the metric's name."""
StagesBySection = Mapping[str, Sequence[Stage]]
LEAST_CHANCE = 0.002
"""Below it guessing is no level to compare with: 1 in 90,000 for a passkey of five digits."""


@dataclass(frozen=True)
class Series:
    """One combination of the axes' values, over all points of the metric."""

    key: str  # shared by its cells
    label: str  # the name within its panel, usually the embedding
    panel: str  # what it shares with the series it is compared with; "" if there is one panel
    axis_values: tuple[str, ...]  # one for each axis of the group
    cells: Mapping[Any, Cell]  # by x; None for a single number
    trained_length: int | None

    @property
    def name(self) -> str:
        """The label, and the panel if there are several."""
        return f"{self.label} ({self.panel})" if self.panel else self.label

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the stages that all cells share; those with a value come first."""
        return next(iter(self.cells.values())).keys

    @property
    def done(self) -> int:
        """The number of seeds that have a value at every point."""
        return min((len(cell.values) for cell in self.cells.values()), default=0)

    @property
    def requested(self) -> int:
        """The number of seeds that the sweep requests."""
        return max((len(c.values) + len(c.missing) for c in self.cells.values()), default=0)


@dataclass(frozen=True)
class MetricGroup:
    """One metric of one section of the sweep file, over all series."""

    section: str
    metric: Metric
    axes: tuple[str, ...]  # short names of the axes that differ between series
    panel_axes: tuple[str, ...]  # those of `axes` that divide the series into panels
    shared: tuple[str, ...]  # "axis value" of the axes that have one value
    series: tuple[Series, ...]
    only: bool = True  # whether no other section has the metric
    chance: float | None = None  # the value of guessing, if it is known and large enough to see

    @property
    def key(self) -> GroupKey:
        """The identity of the group within a report."""
        return self.section, self.metric.name

    @property
    def cells(self) -> list[Cell]:
        """The cells of all series, one series after another."""
        return [cell for series in self.series for cell in series.cells.values()]

    @property
    def xs(self) -> tuple[int | None, ...]:
        """Every x at which a series has a cell, in rising order."""
        xs = {x for series in self.series for x in series.cells}
        return tuple(sorted(xs, key=lambda x: (x is not None, x or 0)))

    @property
    def panels(self) -> dict[str, list[Series]]:
        """The series by panel, in the order of the sweep."""
        panels: dict[str, list[Series]] = {}
        for series in self.series:
            panels.setdefault(series.panel, []).append(series)
        return panels

    @property
    def trained_lengths(self) -> tuple[int, ...]:
        """The training lengths of the group's models, in rising order."""
        return tuple(sorted({s.trained_length for s in self.series if s.trained_length}))

    @property
    def title(self) -> str:
        """The metric in words, and the section unless the metric's name already tells it."""
        words = self.metric.label[:1].upper() + self.metric.label[1:]
        if self.metric.axis not in (None, LENGTH):
            words += f" by {self.metric.by}"
        section, metric = (set(name.split("_")) for name in (self.section, self.metric.name))
        named = section <= metric and self.only
        return words if named else f"{words} ({self.section})"


def group_metrics(
    cells: Sequence[Cell],
    results: Sequence[StageResult],
    requested: Collection[GroupKey] = (),
) -> tuple[MetricGroup, ...]:
    """Group all cells: curves first, then single numbers, each in the order of the stages.

    The results give the level of guessing and the tokenizers. A metric that repeats another metric
    of its stage, such as a loss beside its perplexity, has no group; but one that compares across
    tokenizers has a group where it is `requested`, or where the models' tokenizers differ.
    """
    tokenizers = {
        result.stage.key: tokenizer_label(result.stage.model_spec.tokenizer)
        for result in results
        if result.stage.model_spec is not None
    }

    groups: dict[GroupKey, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.section, cell.metric.name), []).append(cell)

    def is_shown(key: GroupKey, members: Sequence[Cell]) -> bool:
        metric = members[0].metric
        if (key[0], metric.shown_as) not in groups:
            return True
        used = {tokenizers.get(stage) for cell in members for stage in cell.keys}
        return metric.across_tokenizers and (key in requested or len(used) > 1)

    metric_groups = [
        dataclasses.replace(
            _group(section, members),
            only=[other for _, other in groups].count(name) == 1,
            chance=_chance_level(name, section, results),
        )
        for (section, name), members in groups.items()
        if is_shown((section, name), members)
    ]
    return tuple(sorted(metric_groups, key=lambda group: group.metric.axis is None))


def _chance_level(metric: str, section: str, results: Sequence[StageResult]) -> float | None:
    """The value that guessing gives, if the section's results agree on it and it can be seen."""
    levels = {
        measurement.chance
        for result in results
        if result.stage.section == section
        for measurement in result.record.metrics
        if measurement.name == metric and measurement.chance is not None
    }
    return levels.pop() if len(levels) == 1 and min(levels) >= LEAST_CHANCE else None


def _group(section: str, cells: Sequence[Cell]) -> MetricGroup:
    axes = read_axes(cells)
    by_series: dict[str, dict[int | None, Cell]] = {}
    for cell in cells:
        by_series.setdefault(cell.series, {})[cell.x] = cell
    return MetricGroup(
        section=section,
        metric=cells[0].metric,
        axes=tuple(axes.names[path] for path in axes.varying),
        panel_axes=tuple(axes.names[path] for path in axes.panels),
        shared=axes.shared,
        series=tuple(series_of(axes, section, key, points) for key, points in by_series.items()),
    )


def series_of(axes: Axes, section: str, key: str, cells: Mapping[Any, Cell]) -> Series:
    """The series of cells by x, in the words of the axes that tell it from others."""
    first = next(iter(cells.values()))
    return Series(
        key=key,
        label=axes.label(first, section),
        panel=axes.panel(first),
        axis_values=axes.values(first),
        cells=cells,
        trained_length=first.trained_length,
    )


def stages_without_cells(
    results: Iterable[StageResult], cells: Iterable[Cell]
) -> dict[str, list[StageResult]]:
    """The stages with a model that have no cell yet, by their section of the sweep file."""
    with_cells = {cell.section for cell in cells}
    with_model = group_by_section(
        result for result in results if result.stage.model_spec is not None
    )
    return {
        section: members
        for section, members in with_model.items()
        if section not in with_cells and not all(result.state.is_done for result in members)
    }


def requested_groups(
    groups: Sequence[MetricGroup], texts: Sequence[str] | None, by_section: StagesBySection
) -> tuple[MetricGroup, ...]:
    """The groups that texts of the form `[stage.]metric[(corpus)]` name, in the order of the texts.

    Without texts, all groups. If another metric of the section stands for the named one, such as
    perplexity for loss, its group is returned.
    """
    if texts is None:
        return tuple(groups)
    by_key = {group.key: group for group in groups}
    requested: dict[GroupKey, MetricGroup] = {}
    for section, metric in _named(texts, by_section):
        own = by_key.get((section, metric.name))
        group = own or by_key.get((section, metric.shown_as or metric.name))
        if group is not None:
            requested[group.key] = group
    return tuple(requested.values())


def requested_keys(texts: Sequence[str] | None, by_section: StagesBySection) -> set[GroupKey]:
    """The section and the name of each metric that the texts name."""
    return {(section, metric.name) for section, metric in _named(texts or (), by_section)}


def requested_trainings(
    results: Sequence[StageResult], texts: Sequence[str] | None, by_section: StagesBySection
) -> tuple[StageResult, ...]:
    """The training stages that the texts name; without texts, all stages."""
    if texts is None:
        return tuple(results)
    sections = {section for section, _ in _named(texts, by_section)}
    return tuple(r for r in results if r.stage.section in sections and r.stage.spec.trains)


def _named(texts: Sequence[str], by_section: StagesBySection) -> list[tuple[str, Metric]]:
    """The section and the metric of each text of a checked sweep file."""
    catalogue = Catalogue(by_section)
    selections = [catalogue.find(parse_quantity(text)) for text in texts]
    return [(selected.stage, selected.metric) for selected in selections]
