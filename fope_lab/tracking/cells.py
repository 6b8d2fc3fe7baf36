"""The cells of a report as runs: a query in MLflow finds means and intervals over seeds.

A cell is the stages of one section that differ only in their seed. Its run has the kind `cell`, and
for a metric such as accuracy

    accuracy, accuracy_stderr                    the mean over seeds, and its standard error
    accuracy_ci95_low, accuracy_ci95_high        its 95 % interval
    accuracy_n                                   how many seeds the mean is over

A curve has the same, with its x as the step. Each point of a curve over lengths is also a metric of
its own: perplexity/64, perplexity_stderr/64, perplexity_ci95_low/64 and so on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.tracking.names import WIDTH, run_names
from fope_lab.tracking.parameters import parameters
from fope_lab.tracking.points import LISTED_AXES, Point
from fope_lab.tracking.view import CELL, Outline, stage_tags, valid_name


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The mean of a metric over `n` seeds, at `x` of a curve; x is None for a single number.

    There is no mean if a value is not finite, and no error or interval for a single seed.
    """

    name: str
    x: int | None
    n: int
    mean: float | None
    stderr: float | None
    ci95: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """The estimates of a cell.

    `measured` has the keys of its stages that have values, `missing` those of the others. `time` is
    when the last of them finished, in ms since 1970.
    """

    measured: tuple[str, ...]
    missing: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    time: int

    @property
    def digest(self) -> str:
        """What tells these estimates from others of the same cell."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()

    @property
    def suffix(self) -> str:
        """How many seeds the cell has, as the end of its run's name."""
        return f" n={len(self.measured)}"


def cells_json(cells: Iterable[CellRecord]) -> str:
    """The cells as JSON text, which `parse_cells` reads."""
    return json.dumps([dataclasses.asdict(cell) for cell in cells]) + "\n"


def parse_cells(text: str) -> tuple[CellRecord, ...]:
    """The cells in JSON text. Raises ValueError if it is of another shape."""
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[CellRecord, ...]).validate_json(text)


def cell_names(outline: Outline, cells: Mapping[str, CellRecord]) -> dict[str, str]:
    """The names of the runs of cells, by the keys of the cells: "rope perplexity n=3"."""
    stages = {stage.key: stage for stage in outline.stages}
    firsts = [
        dataclasses.replace(stages[cell.measured[0]], key=key, label="", seed=None)
        for key, cell in cells.items()
    ]
    room = WIDTH - max((len(cell.suffix) for cell in cells.values()), default=0)
    names = run_names(firsts, room)
    return {key: f"{names[key]}{cell.suffix}" for key, cell in cells.items()}


def cell_tags(outline: Outline, cell: CellRecord) -> dict[str, str]:
    """The tags of a cell's run: those that its stages share, its seeds and their number."""
    stages = {stage.key: stage for stage in outline.stages}
    seeds = (stages[key].seed for key in cell.measured)
    not_finite = [
        estimate.name if estimate.x is None else f"{estimate.name} at {estimate.x}"
        for estimate in cell.estimates
        if estimate.mean is None and estimate.n
    ]
    return stage_tags(
        outline,
        stages[cell.measured[0]],
        {
            "kind": CELL,
            "n": len(cell.measured),
            "seeds": ", ".join(str(seed) for seed in seeds if seed is not None) or None,
            "missing": ", ".join(stages[key].label for key in cell.missing) or None,
            "non_finite": ", ".join(not_finite) or None,
        },
    )


def cell_parameters(outline: Outline, cell: CellRecord) -> dict[str, str]:
    """The parameters that all stages of a cell share."""
    stages = {stage.key: stage for stage in outline.stages}
    first, *others = (parameters(stages[key], stages) for key in (*cell.measured, *cell.missing))
    shared = set(first.items()).intersection(*(other.items() for other in others))
    return {name: value for name, value in first.items() if (name, value) in shared and value}


def cell_points(cell: CellRecord) -> list[Point]:
    """The estimates of a cell as points of metrics."""
    found = []
    for estimate in cell.estimates:
        curve, _, axis = estimate.name.rpartition("_by_")
        step = 0 if estimate.x is None else estimate.x
        for ending, value in _columns(estimate).items():
            found.append(Point(valid_name(f"{estimate.name}{ending}"), step, cell.time, value))
            if axis in LISTED_AXES:
                found.append(Point(valid_name(f"{curve}{ending}/{step}"), 0, cell.time, value))
    return found


def _columns(estimate: Estimate) -> dict[str, float]:
    """The numbers of an estimate, by the ends of the names of their metrics."""
    low, high = estimate.ci95 or (None, None)
    columns: dict[str, Any] = {
        "": estimate.mean,
        "_stderr": estimate.stderr,
        "_ci95_low": low,
        "_ci95_high": high,
        "_n": estimate.n,
    }
    return {
        ending: float(value)
        for ending, value in columns.items()
        if value is not None and math.isfinite(value)
    }
