"""What a claim says in numbers: on which side of a value a sum of measured numbers is.

A claim is made of series, each the number of one model over its seeds, and of contrasts, each a
weighted sum of series under one seed. `a < b` is the contrast a − b, on the lower side of 0.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.stages.result import MetricPoint
from fope_lab.statistics.t_test import Side
from fope_lab.sweep.graph import Stage

Seeds = Mapping[int | None, Stage]


@dataclass(frozen=True)
class Series:
    """One number of one model: its name in the claim, and the stages that measure it, by seed.

    `model` is the name of the model, which has several numbers along a curve. `point` is the name
    that the stages measure the number under, and the point of its curve.
    """

    name: str
    model: str
    stages: Seeds
    point: MetricPoint


@dataclass(frozen=True)
class Contrast:
    """The statement that a sum is on one `side` of `null`; `weights` has the series by place.

    `name` says in words what the sum is. `positive` is the series that must be above 0 for the
    statement to mean anything, because a margin is a share of it.
    """

    name: str
    weights: Mapping[int, float]
    null: float
    side: Side
    positive: int | None = None


@dataclass(frozen=True)
class Combination:
    """What a claim says of one combination of the axes that it leaves open, `axes` by path."""

    axes: Mapping[str, Any]
    series: tuple[Series, ...]
    contrasts: tuple[Contrast, ...]

    @property
    def members(self) -> tuple[Seeds, ...]:
        """The stages of each series, by seed."""
        return tuple(series.stages for series in self.series)

    @property
    def has_seeds(self) -> bool:
        """Whether any compared stage has a seed."""
        return any(seed is not None for seeds in self.members for seed in seeds)

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether no stage has a model, so that there is nothing random to test."""
        stages = [stage for seeds in self.members for stage in seeds.values()]
        return all(stage.model_spec is None for stage in stages)
