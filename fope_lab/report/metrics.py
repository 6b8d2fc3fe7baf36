"""What a metric's name says: its axis, which way is better, and how its numbers are written.

`perplexity_by_length` is a curve: the row's step is the context length. A metric without `_by_` is
one number per stage. Losses, perplexities and accuracies are results; whatever else a stage logs
(learning rate, throughput, gradient norm) describes how it ran, and stays in MLflow.
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
_BEGINNINGS: tuple[tuple[str, Better], ...] = (("longbench_", "higher"),)
SAME_AS = {"loss_by_length": "perplexity_by_length"}  # not shown where the other one is
_AXES = {"length": "context length, tokens"}


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
        form = self._form(value)
        return f"{value:{form}}" if spread is None else f"{value:{form}} ± {spread:{form}}"

    def _form(self, value: float) -> str:
        if self.better is None or self.is_fraction or self.label.endswith("loss"):
            return ".3f"
        size = abs(value)
        if size >= 1e6:
            return ".2e"
        return ",.0f" if size >= 1000 else ".1f" if size >= 100 else ".2f"


_NON_FINITE = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}


def describe_metric(name: str) -> Metric:
    """Read a metric's name."""
    base, _, x = name.partition("_by_")
    better = next((b for ending, b in _ENDINGS if base.endswith(ending)), None)
    if better is None:
        better = next((b for beginning, b in _BEGINNINGS if base.startswith(beginning)), None)
    return Metric(name, base.replace("_", " "), x or None, better)
