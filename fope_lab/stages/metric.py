"""A metric: what a number that a stage logs means, declared once by the stage that logs it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fope_lab.data.corpora.base import Corpus

Better = Literal["lower", "higher"]
Unit = Literal["fraction", "nats", "perplexity", "ratio", "percent", "number", "any"]
DECIMALS: dict[Unit, str] = {"fraction": ".3f", "nats": ".3f", "number": ".3f", "any": ".4g"}
"""How tables write a value; other units have three significant digits or so."""
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
