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

The stage's trial writes it (orchestration/trial.py, by Attempt.finish). The report reads it
(report/results/cells.py). MLflow gets its points from the rows of metrics/, where an evaluation
logs each metric a second time (tracking/upload.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from fope_lab.config.problems import UserError

FORMAT = 2
MetricPoint = tuple[str, int | None]
"""A metric's name and the point of its curve, None for a single number."""
Z_95 = 1.9599639845400536  # 97.5 % of a normal distribution are below; no import for one number


class DamagedResultError(UserError):
    """A result.json has another shape than every stage writes; the message says where."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The value of the metric `name`, at `x` if the metric is a curve. `stderr` and `ci95`, the 95
    % interval, are what the finite evaluation leaves, of `n` samples; `chance`, what guessing
    gives, is shown where all points of a curve have the same."""

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
    def parse(cls, content: Any) -> Self:
        """The measurement that `dataclasses.asdict` and JSON made `content` of."""
        fields = _shaped(content, _MEASUREMENT, "a metric")
        ci95 = fields["ci95"]
        if ci95 is not None and [isinstance(end, _NUMBER) for end in ci95] != [True, True]:
            raise DamagedResultError(f"the ci95 of {fields['name']} is {ci95!r}")
        return cls(**{**fields, "ci95": None if ci95 is None else tuple(ci95)})


@dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """The content of a result.json; see the module's text for its fields."""

    metrics: tuple[Measurement, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, Any] = field(default_factory=dict)
    heatmaps: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "metrics": [dataclasses.asdict(measurement) for measurement in self.metrics],
            "numbers": dict(self.numbers),
            "recorded": dict(self.recorded),
            "heatmaps": [dict(heatmap) for heatmap in self.heatmaps],
            "details": dict(self.details),
        }

    @classmethod
    def parse(cls, content: Any) -> Self:
        """The record that `as_json` made `content` of. Raises DamagedResultError if a field is
        missing or of another type."""
        fields = _shaped(content, _RECORD, "it")
        if fields["format"] != FORMAT:
            raise DamagedResultError(f"its format is {fields['format']}, and must be {FORMAT}")
        _shaped(numbers := fields["numbers"], dict.fromkeys(numbers, _NUMBER), "numbers")
        return cls(
            metrics=tuple(map(Measurement.parse, fields["metrics"])),
            numbers=numbers,
            recorded=fields["recorded"],
            heatmaps=tuple(_shaped(one, _HEATMAP, "a heat map") for one in fields["heatmaps"]),
            details=fields["details"],
        )


_NUMBER = (int, float)
_MAYBE = (int, float, type(None))
_LIST = (list, tuple)
_MEASUREMENT: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "value": _NUMBER,
    "x": (int, type(None)),
    "stderr": _MAYBE,
    "ci95": (*_LIST, type(None)),
    "n": (int, type(None)),
    "chance": _MAYBE,
}
_RECORD: Mapping[str, tuple[type, ...]] = {
    "format": (int,),
    "metrics": _LIST,
    "numbers": (dict,),
    "recorded": (dict,),
    "heatmaps": _LIST,
    "details": (dict,),
}
_HEATMAP: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("title", "metric", "x_label", "y_label"), (str,)),
    **dict.fromkeys(("x", "y", "values"), _LIST),
    **dict.fromkeys(("low", "high"), _NUMBER),
}


def _shaped(content: Any, shape: Mapping[str, tuple[type, ...]], what: str) -> dict[str, Any]:
    """`content` if it has the fields of `shape` with their types, and no others."""
    if not isinstance(content, dict):
        raise DamagedResultError(f"{what} is not a mapping")
    for name in [*shape, *content]:
        if name not in content:
            raise DamagedResultError(f"{what} has no {name}")
        if not isinstance(content[name], shape.get(name, ())):
            raise DamagedResultError(f"{what} has {name}: {str(content[name])[:60]!r}")
    return content
