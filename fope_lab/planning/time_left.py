"""The time that is left of a run: the plan's forecasts, corrected by what has run so far.

A forecast is wrong by about the same factor for all stages of a kind, whose time model it comes
from. So the stages of a kind that have run, or are running, correct the forecasts of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.planning.schedule import Machines, wall_time
from fope_lab.sweep.graph import Stage


@dataclass(frozen=True)
class StageTime:
    """The seconds that a stage takes in all, and those that are left, by its speed in this run."""

    total: float
    left: float = 0.0


@dataclass(frozen=True)
class TimeLeft:
    """How much of the work is done, and how long the rest takes by the clock.

    `share` is between 0 and 1, and `seconds` is None where nothing is known of any unfinished
    stage. `unknown` counts the unfinished stages that neither number includes.
    """

    share: float
    seconds: float | None
    unknown: int


def time_left(
    stages: Sequence[Stage],
    forecasts: Mapping[str, float | None],
    measured: Mapping[str, StageTime],
    *,
    cached: Mapping[str, float],
    begun: Mapping[str, float],
    stopped: Collection[str],
    machines: Machines,
) -> TimeLeft:
    """The time that is left of `stages`, which come parents first.

    `forecasts` has the seconds of each stage by key, or None; `measured` the stages that have run
    in this run, or have a speed; `cached` the seconds that stages took which were done before; and
    `begun` for how many seconds stages have been running that have no speed yet. `stopped` are the
    keys of stages that this run won't finish: they have no time left, but their work is not done.
    """
    expected = {**expected_seconds(stages, forecasts, measured), **cached}
    left = {
        key: measured[key].left if key in measured else max(seconds - begun.get(key, 0.0), 0.0)
        for key, seconds in expected.items()
        if seconds is not None and key not in cached and key not in stopped
    }
    known = {key: seconds for key, seconds in expected.items() if seconds is not None}
    undone = sum(left.values()) + sum(known[key] for key in stopped if key in known)
    whole = sum(known.values())
    unknown = sum(value is None and key not in stopped for key, value in expected.items())
    nothing_known = unknown and not any(left.values())
    return TimeLeft(
        share=max(1 - undone / whole, 0.0) if whole else 0.0,
        seconds=None if nothing_known else wall_time(stages, left, machines).scheduled,
        unknown=unknown,
    )


def expected_seconds(
    stages: Sequence[Stage],
    forecasts: Mapping[str, float | None],
    measured: Mapping[str, StageTime],
) -> dict[str, float | None]:
    """The seconds of each stage in all: measured, else the corrected forecast.

    A stage without a forecast counts as the mean of the measured stages of its kind.
    """
    of_kind: defaultdict[str, list[StageTime]] = defaultdict(list)
    ratios = _Ratios()
    for stage in stages:
        if (time := measured.get(stage.key)) is None:
            continue
        of_kind[stage.kind].append(time)
        if forecast := forecasts[stage.key]:
            ratios.add(stage.kind, time.total, forecast)
    expected: dict[str, float | None] = {}
    for stage in stages:
        forecast, alike = forecasts[stage.key], of_kind[stage.kind]
        if stage.key in measured:
            expected[stage.key] = measured[stage.key].total
        elif forecast is not None:
            expected[stage.key] = forecast * ratios.of(stage.kind)
        else:
            expected[stage.key] = sum(t.total for t in alike) / len(alike) if alike else None
    return expected


class _Ratios:
    """Measured to forecast time, of each kind of stage and of all kinds together."""

    def __init__(self) -> None:
        self._measured: defaultdict[str, float] = defaultdict(float)
        self._forecast: defaultdict[str, float] = defaultdict(float)

    def add(self, kind: str, measured: float, forecast: float) -> None:
        """Count the seconds that a stage took, and those that were forecast for it."""
        self._measured[kind] += measured
        self._forecast[kind] += forecast

    def of(self, kind: str) -> float:
        """The ratio of a kind; that of all kinds where none of it has run; else 1."""
        if kind in self._forecast:
            return self._measured[kind] / self._forecast[kind]
        forecast = sum(self._forecast.values())
        return sum(self._measured.values()) / forecast if forecast else 1.0
