"""What a finished stage says: the content of its result.json, which has one shape for all kinds.

    {
      "format": 2,
      "metrics": [{"name", "x", "value", "stderr", "ci95", "n", "chance"}, …],
      "numbers": {NAME: VALUE, …}, beside the figure of an analysis: claims read them, tables do not
      "recorded": {…},    what the numbers depend on and only running decided: reports list it
      "heatmaps": [{"title", "metric", "x_label", "y_label", "x", "y", "values", "low", "high"}, …],
      "details": {…}      whatever else is worth keeping: no report reads it
    }

A metric's `name` is that of a Metric which the stage's configuration declares; `x` is null for a
single number, and so is whatever is unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

FORMAT = 2
MetricPoint = tuple[str, int | None]
"""A metric's name and the point of its curve, None for a single number."""
Z_95 = 1.9599639845400536  # 97.5 % of a normal distribution are below; no import for one number


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The value of the metric `name`, at `x` if the metric is a curve.

    `stderr` is the standard error and `ci95` the 95 % interval that the finite evaluation leaves,
    where they are known; `n` is how many samples the value is the mean of; `chance` is the value
    that guessing gives, which reports show where all points of a curve have the same.
    """

    name: str
    value: float
    x: int | None = None
    stderr: float | None = None
    ci95: tuple[float, float] | None = None
    n: int | None = None
    chance: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, of a normal distribution where only the standard error is known."""
        if self.ci95 is None and self.stderr is not None:
            return self.value - Z_95 * self.stderr, self.value + Z_95 * self.stderr
        return self.ci95

    @property
    def row(self) -> dict[str, float]:
        """This measurement as columns of a row of metrics: NAME, and NAME_stderr if known."""
        values = {self.name: self.value}
        return values if self.stderr is None else {**values, f"{self.name}_stderr": self.stderr}

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """The measurement that `dataclasses.asdict` and JSON made `content` of."""
        ci95 = content["ci95"]
        return cls(**{**content, "ci95": None if ci95 is None else (ci95[0], ci95[1])})


@dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """The content of a result.json; see the module's text for its fields."""

    metrics: tuple[Measurement, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, Any] = field(default_factory=dict)
    heatmaps: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The content as JSON values."""
        return {
            "format": FORMAT,
            "metrics": [dataclasses.asdict(measurement) for measurement in self.metrics],
            "numbers": dict(self.numbers),
            "recorded": dict(self.recorded),
            "heatmaps": [dict(heatmap) for heatmap in self.heatmaps],
            "details": dict(self.details),
        }

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        """The record that `as_json` made `content` of; what is missing is empty."""
        maps = content.get("heatmaps")
        return cls(
            metrics=tuple(Measurement.parse(metric) for metric in content.get("metrics", ())),
            numbers=content.get("numbers", {}),
            recorded=content.get("recorded", {}),
            heatmaps=tuple(m for m in maps if isinstance(m, Mapping))
            if isinstance(maps, list)
            else (),
            details=content.get("details", {}),
        )


_NUMBER = {"type": ["number", "null"]}
_COUNT = {"type": ["integer", "null"]}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


RESULT_SCHEMA: dict[str, Any] = _closed(
    {
        "format": {"const": FORMAT},
        "metrics": {
            "type": "array",
            "items": _closed(
                {
                    "name": {"type": "string"},
                    "value": {"type": "number"},
                    "x": _COUNT,
                    "stderr": _NUMBER,
                    "ci95": {
                        "type": ["array", "null"],
                        "items": {"type": "number"},
                        "minItems": 2,
                        "maxItems": 2,
                    },
                    "n": _COUNT,
                    "chance": _NUMBER,
                }
            ),
        },
        "numbers": {"type": "object", "additionalProperties": {"type": "number"}},
        "recorded": {"type": "object"},
        "heatmaps": {
            "type": "array",
            "items": _closed(
                {
                    "title": {"type": "string"},
                    "metric": {"type": "string"},
                    "x_label": {"type": "string"},
                    "y_label": {"type": "string"},
                    "x": {"type": "array"},
                    "y": {"type": "array"},
                    "values": {"type": "array", "items": {"type": "array", "items": _NUMBER}},
                    "low": {"type": "number"},
                    "high": {"type": "number"},
                }
            ),
        },
        "details": {"type": "object"},
    }
)
"""The JSON Schema of a result.json."""
