"""A number that a stage measured, with what is known of its uncertainty."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

Z_95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The value of the metric `name`, at `x` if the metric is a curve.

    `stderr` is the standard error and `ci95` the 95 % interval that the finite evaluation leaves,
    where they are known; `n` is how many samples the value is the mean of; `chance` is the value
    that guessing gives.
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
        """The values that a row of metrics has of it: the value, and `NAME_stderr` if known."""
        found = {self.name: self.value}
        return found if self.stderr is None else {**found, f"{self.name}_stderr": self.stderr}
