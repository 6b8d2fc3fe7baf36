"""How quickly trainings ran, and what their time went to beside training steps.

A training records its seconds, and of them those of waiting for data, of writing checkpoints and
of validations (trainers/loop.py). Results that are older record no parts, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fope_lab.report.results.stage_results import StageResult

PARTS = {
    "data": "data_seconds",
    "checkpoints": "checkpoint_seconds",
    "validations": "validation_seconds",
}
"""The recorded seconds of each part of a training's time."""


@dataclass(frozen=True)
class TimeLost:
    """The `seconds` of trainings that record what they took, and the share of each part of it."""

    trainings: int
    seconds: float
    shares: Mapping[str, float]

    @property
    def words(self) -> str:
        """The shares in words: '0.2 % reading data, 1 % writing checkpoints, …'."""
        verbs = {"data": "waiting for data", "checkpoints": "writing checkpoints"}
        return ", ".join(
            f"{_percent(share)} {verbs.get(part, part)}" for part, share in self.shares.items()
        )


@dataclass(frozen=True)
class Speed:
    """A training's tokens per second, and the share of its devices' peak if that is known."""

    tokens_per_second: float
    utilisation: float | None


def time_lost(results: Iterable[StageResult]) -> TimeLost | None:
    """What the finished trainings lost; None if none of them records it."""
    recorded = [result.record.recorded for result in results if result.stage.spec.trains]
    recorded = [one for one in recorded if all(name in one for name in PARTS.values())]
    seconds = sum(one["seconds"] for one in recorded)
    if not seconds:
        return None
    shares = {part: sum(one[name] for one in recorded) / seconds for part, name in PARTS.items()}
    return TimeLost(len(recorded), seconds, shares)


def speed_of(result: StageResult) -> Speed | None:
    """The speed of a finished training; None for other stages and where it is not recorded."""
    recorded = result.record.recorded
    if not result.stage.spec.trains or "tokens_per_second" not in recorded:
        return None
    return Speed(recorded["tokens_per_second"], recorded.get("flops_utilisation"))


def _percent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.001 else f"{100 * share:.2g} %"
