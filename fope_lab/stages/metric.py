"""What a stage measures. A Metric, declared once by a kind of stage, says what a number means; a
Measurement is its value; a ResultRecord is the content of result.json, of one shape for all kinds:

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
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from fope_lab.config.problems import UserError
from fope_lab.data.corpora.base import Corpus

Better = Literal["lower", "higher"]
Unit = Literal["fraction", "nats", "perplexity", "ratio", "percent", "number", "any"]
DECIMALS: dict[Unit, str] = {"fraction": ".3f", "nats": ".3f", "number": ".3f", "any": ".4g"}
"""How tables write a value; other units have three significant digits or so."""
FORMAT = 2
ARRAYS = "arrays.npz"
"""The file of a stage's checkpoint with the arrays that its `picture` is drawn from."""
MetricPoint = tuple[str, int | None]
"""A metric's name and the point of its curve, None for a single number."""
Z_95 = 1.9599639845400536  # 97.5 % of a normal distribution are below; no import for one number
_NON_FINITE = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}


@dataclass(frozen=True)
class CurveAxis:
    """What a curve runs over: `name` ends the metric's name, `label` is the axis title of a figure.
    If x counts tokens, the trained length is marked on it."""

    name: str
    label: str
    in_tokens: bool


LENGTH = CurveAxis("length", "context length, tokens", in_tokens=True)
POSITION = CurveAxis("position", "position, tokens", in_tokens=True)
INPUT_LENGTH = CurveAxis("input_length", "length of the input, symbols", in_tokens=False)
WORDS = CurveAxis("words", "bucket of lengths, words", in_tokens=False)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of one stage.

    `name` is what it is logged under; that of a curve ends in its axis, `_by_length`.
    `short_name` is what claims use, `label` the words that tables use; by default the name in
    words, without the axis. A curve has an `axis`, and `xs`, the points that the configuration asks
    for. `corpus` is the text that it is measured on. `mastery`, for the accuracy of a task that a
    model may fail to learn, names the metric that tells what the model knows inside the trained
    length. `shown_as` names the metric of the same stage that tables show instead; one that
    compares `across_tokenizers` is shown beside it where the models of a table differ in theirs.
    """

    name: str
    short_name: str
    better: Better | None
    unit: Unit
    axis: CurveAxis | None = None
    xs: tuple[int, ...] | None = None
    label: str = ""
    corpus: Corpus | None = None
    mastery: str | None = None
    shown_as: str | None = None
    across_tokenizers: bool = False

    def __post_init__(self) -> None:
        ending = "" if self.axis is None else f"_by_{self.axis.name}"
        if not self.label:
            object.__setattr__(self, "label", self.name.removesuffix(ending).replace("_", " "))

    @property
    def by(self) -> str:
        return "" if self.axis is None else self.axis.name.replace("_", " ")

    @property
    def in_tokens(self) -> bool:
        """Whether the metric is a curve over tokens."""
        return self.axis is not None and self.axis.in_tokens

    @property
    def is_number(self) -> bool:
        """Whether this is a number of an analysis, which claims can name and tables can't."""
        return self.unit == "any"

    @property
    def is_fraction(self) -> bool:
        return self.unit == "fraction"

    def format(self, value: float, spread: float | None = None) -> str:
        """`value` as tables show it, `± spread` with the same number of decimals."""
        if not math.isfinite(value):
            return _NON_FINITE[str(value)]
        error = "" if spread is None else f" ± {self.format_error(value, spread)}"
        return f"{value:{self._form(value)}}{error}"

    def format_error(self, value: float, error: float) -> str:
        """An error of `value`, with as many decimals as the value has."""
        return f"{error:{self._form(value)}}" if math.isfinite(error) else _NON_FINITE[str(error)]

    def _form(self, value: float) -> str:
        size = abs(value)
        if self.is_number and 1e4 <= size < 1e12:
            return ",.0f"
        if self.unit in DECIMALS:
            return DECIMALS[self.unit]
        if size >= 1e6:
            return ".2e"
        return ",.0f" if size >= 1000 else ".1f" if size >= 100 else ".2f"


def number_metric(name: str) -> Metric:
    """A number of an analysis, as claims see it."""
    return Metric(name=name, short_name=name, better=None, unit="any")


def accuracy_by_length(
    *, name: str, short_name: str, lengths: tuple[int, ...], corpus: Corpus | None = None
) -> Metric:
    """An accuracy at several context lengths; the shorter ones tell whether the task is learned."""
    return Metric(
        name=name,
        short_name=short_name,
        better="higher",
        unit="fraction",
        axis=LENGTH,
        xs=tuple(sorted(lengths)),
        corpus=corpus,
        mastery=name,
    )


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
