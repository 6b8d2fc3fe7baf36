"""What a metric's name says: its axis, which way is better, and how its numbers are written.

`perplexity_by_length` is a curve: the row's step is the context length. A metric without `_by_` is
one number per stage. Losses, perplexities and accuracies are results; whatever else a stage logs
(learning rate, throughput, gradient norm) describes how it ran, and stays in MLflow. A metric's
name with `_stderr` is its standard error, and no metric of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]

# The first ending (or beginning) that fits decides. Names are those of the stages' metrics.
_ENDINGS: tuple[tuple[str, Better], ...] = (
    ("perplexity", "lower"),
    ("perplexity_ratio", "lower"),
    ("loss", "lower"),
    ("accuracy", "higher"),
)
_BEGINNINGS: tuple[tuple[str, Better], ...] = (
    ("longbench_", "higher"),
    ("leval_", "higher"),
)
# not shown where the other one is
SAME_AS = {f"loss_by_{x}": f"perplexity_by_{x}" for x in ("length", "position")}
_AXES = {
    "length": "context length, tokens",
    "position": "position, tokens",
    "words": "bucket of lengths, words",
}
_ERROR = "_stderr"


@dataclass(frozen=True)
class Metric:
    """A metric's name, read."""

    name: str
    label: str  # in words: "passkey accuracy"
    x: str | None  # "length" for `…_by_length`: the meaning of a row's step; None: a single number
    better: Better | None

    @property
    def is_result(self) -> bool:
        """Whether it belongs in a report's tables."""
        return self.x is not None or self.better is not None

    @property
    def in_tokens(self) -> bool:
        """Whether it is a curve over tokens, on which the trained length can be marked."""
        return self.x in ("length", "position")

    @property
    def by(self) -> str:
        """What a curve's numbers go by, in a word."""
        return (self.x or "").replace("_", " ")

    @property
    def x_label(self) -> str:
        """The horizontal axis in words."""
        return _AXES.get(self.x or "", self.x or "")

    @property
    def is_fraction(self) -> bool:
        """Whether values lie in [0, 1]."""
        return "accuracy" in self.name

    def format(self, value: float, spread: float | None = None) -> str:
        """`value` as tables show it, `± spread` with the same number of decimals."""
        if not math.isfinite(value):
            return _NON_FINITE[str(value)]
        return f"{value:{self._form(value)}}" + (
            "" if spread is None else f" ± {self.format_error(value, spread)}"
        )

    def format_error(self, value: float, error: float) -> str:
        """An error of `value` with as many decimals as that has."""
        return f"{error:{self._form(value)}}" if math.isfinite(error) else _NON_FINITE[str(error)]

    def _form(self, value: float) -> str:
        if self.better is None or self.is_fraction or self.label.endswith("loss"):
            return ".3f"
        size = abs(value)
        if size >= 1e6:
            return ".2e"
        return ",.0f" if size >= 1000 else ".1f" if size >= 100 else ".2f"


_NON_FINITE = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}


def with_error(name: str) -> str | None:
    """The metric whose standard error `name` is; None if it is none."""
    return name.removesuffix(_ERROR) if name.endswith(_ERROR) else None


def describe_metric(name: str) -> Metric:
    """Read a metric's name."""
    if with_error(name):
        return Metric(name, name.replace("_", " "), None, None)
    base, _, x = name.partition("_by_")
    better = next((b for ending, b in _ENDINGS if base.endswith(ending)), None)
    if better is None:
        better = next((b for beginning, b in _BEGINNINGS if base.startswith(beginning)), None)
    return Metric(name, base.replace("_", " "), x or None, better)
