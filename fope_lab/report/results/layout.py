"""Which cells stand together: the one arrangement that tables, figures and the summary draw from.

A block is one metric of one stage of the sweep file. Its lines are the combinations of the axes;
where embeddings are compared under several settings (scales, say), the settings part the lines into
panels, and only lines of one panel are compared with each other.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.aggregate import Cell, json_value
from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.chance_level import chance_level
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric


@dataclass(frozen=True)
class Series:
    """One combination of the axes' values: a row of a table, a curve of a figure."""

    label: str  # within its panel: the embedding, as a rule
    panel: str  # what it shares with the lines it is compared with; "" if there is one panel
    axis_values: tuple[str, ...]  # one for each of the block's axes
    cells: Mapping[int | None, Cell]
    train_length: int | None

    @property
    def done(self) -> int:
        """Seeds that gave a value."""
        return min((len(cell.values) for cell in self.cells.values()), default=0)

    @property
    def asked(self) -> int:
        """Seeds that the sweep asks for."""
        return max((len(c.values) + len(c.missing) for c in self.cells.values()), default=0)


@dataclass(frozen=True)
class MetricGroup:
    """One metric of one stage, over all lines."""

    stage: str
    metric: Metric
    axes: tuple[str, ...]  # short names of the axes that differ between lines
    panel_axes: tuple[str, ...]  # those of them that part the lines into panels
    shared: tuple[str, ...]  # "axis value" of the axes that don't
    lines: tuple[Series, ...]
    only: bool = True  # whether no other stage has the metric
    chance: float | None = None  # what guessing gives, if it is known and not next to nothing

    @property
    def xs(self) -> tuple[int | None, ...]:
        """Every x at which some line has a cell, rising."""
        found = {x for line in self.lines for x in line.cells}
        return tuple(sorted(found, key=lambda x: (x is not None, x or 0)))

    @property
    def panels(self) -> dict[str, list[Series]]:
        """Lines by panel, in the sweep's order."""
        panels: dict[str, list[Series]] = {}
        for line in self.lines:
            panels.setdefault(line.panel, []).append(line)
        return panels

    @property
    def train_lengths(self) -> tuple[int, ...]:
        """The lengths that the block's models were trained at, rising."""
        return tuple(sorted({line.train_length for line in self.lines if line.train_length}))

    @property
    def title(self) -> str:
        """The metric in words, and the stage where its name adds something."""
        words = self.metric.label[:1].upper() + self.metric.label[1:]
        if self.metric.x not in (None, "length"):
            words += f" by {self.metric.by}"
        named = self.stage in self.metric.name and self.only
        return words if named else f"{words} ({self.stage})"


def group_metrics(
    cells: Sequence[Cell], readings: Sequence[StageResult] = ()
) -> tuple[MetricGroup, ...]:
    """All blocks: curves first, then single numbers, each in the order of the sweep's stages.

    The readings' results say what guessing gives. A metric that says the same as another one of its
    stage (a loss beside its perplexity) has none.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.stage, cell.metric.name), []).append(cell)
    blocks = [
        dataclasses.replace(
            _block(stage, group),
            only=[other for _, other in groups].count(name) == 1,
            chance=chance_level(name, stage, readings),
        )
        for (stage, name), group in groups.items()
        if (stage, group[0].metric.shown_as) not in groups
    ]
    return tuple(sorted(blocks, key=lambda block: block.metric.x is None))


def _block(stage: str, cells: Sequence[Cell]) -> MetricGroup:
    axes = read_axes(cells)
    lines: dict[tuple[str, tuple[str, ...]], dict[int | None, Cell]] = {}
    for cell in cells:
        # The keys part lines that have equal axes; build_cells never mixes their stages.
        keys = [value.key for value in cell.values] + [gap.key for gap in cell.missing]
        place = (json.dumps(json_value(cell.axes), sort_keys=True), tuple(sorted(keys)))
        lines.setdefault(place, {})[cell.x] = cell
    return MetricGroup(
        stage=stage,
        metric=cells[0].metric,
        axes=tuple(axes.names[path] for path in axes.varying),
        panel_axes=tuple(axes.names[path] for path in axes.panels),
        shared=axes.shared,
        lines=tuple(_line(axes, stage, points) for points in lines.values()),
    )


def _line(axes: Axes, stage: str, cells: Mapping[int | None, Cell]) -> Series:
    first = next(iter(cells.values()))
    return Series(
        label=axes.label(first, stage),
        panel=axes.panel(first),
        axis_values=axes.values(first),
        cells=cells,
        train_length=first.train_length,
    )


def stages_without_cells(
    readings: Iterable[StageResult], cells: Iterable[Cell]
) -> dict[str, list[StageResult]]:
    """Stages with a model that have no cell since none of them is done, by name in the file."""
    seen = {cell.stage for cell in cells}
    absent: dict[str, list[StageResult]] = {}
    for reading in readings:
        if reading.stage.section not in seen and reading.stage.model_spec is not None:
            absent.setdefault(reading.stage.section, []).append(reading)
    return {
        name: group for name, group in absent.items() if any(not r.state.is_done for r in group)
    }
