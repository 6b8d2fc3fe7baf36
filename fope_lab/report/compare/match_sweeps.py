"""Match the cells of two sweeps: the same section, metric and x, and the same values on every axis.

An axis that one of the sweeps lacks has there the value that its section sets: a sweep with one
embedding is matched with a sweep over several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.labels import ABSENT, is_embedding, label
from fope_lab.sweep.graph import Stage

Results = Mapping[str, StageResult]
"""The results of all stages of a sweep, by key."""
Place = tuple[str, str, int | None, tuple[str, ...]]
"""The section, metric and x of a cell, and its values on the axes of its section."""


@dataclass(frozen=True)
class MatchedCell:
    """A cell of each sweep, or of one of them; `axes` are its values by the axes' paths."""

    section: str
    x: int | None
    axes: Mapping[str, str]
    first: Cell | None
    second: Cell | None

    @property
    def cell(self) -> Cell:
        """One of the cells, for what both have in common."""
        cell = self.first or self.second
        assert cell is not None
        return cell


def match_sweeps(
    first: Sequence[Cell], second: Sequence[Cell], results: tuple[Results, Results]
) -> tuple[MatchedCell, ...]:
    """Match the cells of two sweeps, in the order of the first; cells without a match come last."""
    paths: dict[str, dict[str, None]] = {}
    for cell in (*first, *second):
        paths.setdefault(cell.section, {}).update(dict.fromkeys(cell.axes))
    cells = [
        {_place(cell, of, tuple(paths[cell.section])): cell for cell in sweep}
        for sweep, of in zip((first, second), results, strict=True)
    ]
    return tuple(
        MatchedCell(
            section=place[0],
            x=place[2],
            axes=dict(zip(paths[place[0]], place[3], strict=True)),
            first=cells[0].get(place),
            second=cells[1].get(place),
        )
        for place in {**cells[0], **cells[1]}
    )


def _place(cell: Cell, results: Results, paths: Sequence[str]) -> Place:
    stage = results[cell.keys[0]].stage
    values = tuple(axis_value(stage, results, path) for path in paths)
    return cell.section, cell.metric.name, cell.x, values


def axis_value(stage: Stage, results: Results, path: str) -> str:
    """The value that a stage has on an axis, or else the value that the axis's section sets.

    Where an axis leaves a model the embedding that it has, this is the value.
    """
    keeps_own = is_embedding(path) and stage.axes.get(path) is None
    if path in stage.axes and not keeps_own:
        return label(stage.axes[path])
    section, _, field = path.partition(".")
    at: Stage | None = stage
    while at is not None and at.section != section:
        parent = results.get(results[at.key].model_parent or "")
        at = None if parent is None else parent.stage
    if at is None:
        return ABSENT
    if is_embedding(path) and at.embedding is not None:
        return at.embedding
    value: Any = at.config
    for name in field.split("."):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list | tuple) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return ABSENT
    return label(value)
