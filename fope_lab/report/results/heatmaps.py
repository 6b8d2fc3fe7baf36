"""The heat maps that stages record in their results, and that of passkeys, averaged over seeds.

The `heatmaps` of a result are a list of {title, metric, x_label, y_label, x, y, values, low, high}.
`values` has a row for each y; a missing value is null. A passkey's result has the accuracy by depth
among its details, as `by_depth`: for each length, that in each tenth of the depths with a trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.evaluation.retrieval import PASSKEY
from fope_lab.report.results.aggregate import group_seeds
from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.stage_results import StageResult, group_by_section

SCALE = ("x_label", "y_label", "x", "y", "low", "high")
"""The fields in which all maps of a group must be equal."""


@dataclass(frozen=True)
class MeanHeatmap:
    """The mean over seeds of one combination's heat maps."""

    label: str
    axes: Mapping[str, Any]
    values: NDArray[np.float64]  # (y, x); NaN where a seed has no value
    seeds: int


@dataclass(frozen=True)
class HeatmapGroup:
    """All heat maps of one section of the sweep file that share a title."""

    section: str
    title: str
    metric: str
    scale: Mapping[str, Any]  # the fields of SCALE
    maps: tuple[MeanHeatmap, ...]
    notes: tuple[str, ...]


def group_heatmaps(results: Sequence[StageResult]) -> tuple[HeatmapGroup, ...]:
    """Group the heat maps of all stages by their section of the sweep file and their title."""
    groups: list[HeatmapGroup] = []
    for section, members in group_by_section(results).items():
        axes = read_axes(result.stage for result in members)
        for title in dict.fromkeys(entry["title"] for r in members for entry in _entries(r)):
            groups += _group(section, title, members, axes)
    return tuple(groups)


def _group(
    section: str, title: str, members: Sequence[StageResult], axes: Axes
) -> Iterator[HeatmapGroup]:
    """Average the maps with this title over seeds; nothing if none of them is whole."""
    scale: dict[str, Any] = {}
    metric = ""
    maps: list[MeanHeatmap] = []
    notes: list[str] = []
    for seeds in group_seeds(members):
        arrays = []
        for result in seeds:
            for entry in _entries(result):
                if entry["title"] != title:
                    continue
                values, own_scale = _values(entry), {field: entry[field] for field in SCALE}
                if values is None or own_scale != (scale or own_scale):
                    notes.append(
                        f"The map of {result.stage.label} is damaged or has another scale,"
                        " so it is left out."
                    )
                    continue
                scale, metric = own_scale, entry["metric"]
                arrays.append(values)
        if arrays:
            first = seeds[0].stage
            label = ", ".join(filter(None, (axes.label(first, section), axes.panel(first))))
            maps.append(MeanHeatmap(label, dict(first.axes), np.mean(arrays, axis=0), len(arrays)))
    if maps:
        yield HeatmapGroup(section, title, metric, scale, tuple(maps), tuple(notes))


def _entries(result: StageResult) -> list[Mapping[str, Any]]:
    """The heat maps that a result has, and the one that its details are enough for."""
    return [*result.record.heatmaps, *depth_heatmaps(result.record.details)]


def _values(entry: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """The values of a map, (y, x); None unless there is a number or null for each y and x."""
    try:
        values = np.array(entry["values"], np.float64)  # null becomes NaN
    except (TypeError, ValueError):
        return None
    whole = values.shape == (len(entry["y"]), len(entry["x"]))
    return values if whole and math.isfinite(entry["high"] - entry["low"]) else None


def depth_heatmaps(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The passkey's heat map, in a list; empty if the details have none that can be read."""
    try:
        lengths = {
            int(length): {float(entry["depth"]): float(entry["accuracy"]) for entry in entries}
            for length, entries in details["by_depth"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return []
    xs = sorted(lengths)
    depths = sorted({depth for by_depth in lengths.values() for depth in by_depth})
    if not depths:
        return []
    return [
        {
            "title": "Passkey accuracy by depth and context length",
            "metric": PASSKEY,
            "x_label": "context length, tokens",
            "y_label": "depth of the key, %",
            "x": xs,
            "y": [round(100 * depth, 1) for depth in depths],
            "values": [[lengths[x].get(depth) for x in xs] for depth in depths],
            "low": 0.0,
            "high": 1.0,
        }
    ]
