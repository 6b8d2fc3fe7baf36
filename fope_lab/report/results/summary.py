"""What a sweep did: how many stages are done, what is missing, what it cost, and the best results.

Each stage counts with all its attempts, also with the work that was lost and done again, but not
with output that was set aside. Energy is estimated: the time that each processor was reserved for,
times its power at full load, which is a GPU's board power (devices.yaml), and WATTS_PER_CORE for a
core. Memory, cooling and idle processors are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.devices import board_watts
from fope_lab.config.problems import counted
from fope_lab.report.results.cells import StageResult
from fope_lab.store.state import IMPORTANCE, Status

WATTS_PER_CORE = 5.0
"""Server processors of 2019 to 2024 have 3 to 6 W of thermal design power for each core."""
JOULES_PER_KWH = 3.6e6
PARTS = {
    "data": "data_seconds",
    "checkpoints": "checkpoint_seconds",
    "validations": "validation_seconds",
}
"""The recorded seconds of each part of a training's time."""


def format_seconds(seconds: float | None) -> str:
    """Format a duration: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@dataclass(frozen=True)
class Cost:
    """The cost of finished stages."""

    stages: int
    seconds: float  # the sum of wall times
    core_seconds: float  # that cores and GPUs were reserved for
    gpu_seconds: float
    tokens: int  # that trainings read
    joules: float | None  # None if a stage ran on a GPU whose power is unknown

    @property
    def energy(self) -> str:
        if self.joules is None:
            return "an unknown energy (a stage ran on a GPU whose power is not listed)"
        powers = [f"{WATTS_PER_CORE:g} W for each core"]
        if self.gpu_seconds:
            powers.append("each GPU's board power")
        how = f"estimated, not measured: {' and '.join(powers)}, without memory and cooling"
        return f"about {self.joules / JOULES_PER_KWH:.2g} kWh ({how})"


def cost_of(results: Iterable[StageResult]) -> Cost:
    """The cost of the stages that are done."""
    done = [result for result in results if result.state.is_done]
    seconds = [0.0 if result.taken is None else result.taken.seconds for result in done]
    needs = [result.stage.spec.resources for result in done]
    cores = sum(s * need.cpus * need.size for s, need in zip(seconds, needs, strict=True))
    gpus = [s * need.gpus for s, need in zip(seconds, needs, strict=True)]
    joules: float | None = WATTS_PER_CORE * cores
    for used, result in zip(gpus, done, strict=True):
        watts = board_watts(result.device or "") if used else 0
        joules = None if joules is None or watts is None else joules + used * watts
    return Cost(
        stages=len(done),
        seconds=sum(seconds),
        core_seconds=cores,
        gpu_seconds=sum(gpus),
        tokens=sum(r.stage.cost.tokens or 0 for r in done if r.stage.spec.trains),
        joules=joules,
    )


@dataclass(frozen=True)
class TimeLost:
    """The `seconds` of trainings that record what they took, and the share of each part of it."""

    trainings: int
    seconds: float
    shares: Mapping[str, float]

    @property
    def words(self) -> str:
        verbs = {"data": "waiting for data", "checkpoints": "writing checkpoints"}
        texts = []
        for part, share in self.shares.items():
            percent = "less than 0.1" if 0 < share < 0.001 else f"{100 * share:.2g}"
            texts.append(f"{percent} % {verbs.get(part, part)}")
        return ", ".join(texts)


def time_lost(results: Iterable[StageResult]) -> TimeLost | None:
    """What the finished trainings lost; None if none of them records it."""
    recorded = [result.record.recorded for result in results if result.stage.spec.trains]
    recorded = [one for one in recorded if all(name in one for name in PARTS.values())]
    seconds = sum(one["seconds"] for one in recorded)
    if not seconds:
        return None
    shares = {part: sum(one[name] for one in recorded) / seconds for part, name in PARTS.items()}
    return TimeLost(len(recorded), seconds, shares)


def speed_of(result: StageResult) -> tuple[float | None, float | None]:
    """A finished training's tokens per second, and the share of its devices' peak; None where it is
    not recorded, and for other stages."""
    recorded = result.record.recorded if result.stage.spec.trains else {}
    return recorded.get("tokens_per_second"), recorded.get("flops_utilisation")


@dataclass(frozen=True)
class Summary:
    """Counts of stages, the best results in words, and the stages that are missing."""

    total: int
    counts: Mapping[Status, int]  # without the statuses that no stage has
    seeds: tuple[int, ...]
    cost: Cost  # of all finished stages
    time_lost: TimeLost | None  # of the trainings among them that record it
    findings: tuple[str, ...]
    missing: tuple[str, ...]  # one line for each stage to be done that is not, failures first

    @property
    def headline(self) -> str:
        done, unneeded = (self.counts.get(s, 0) for s in (Status.DONE, Status.NOT_NEEDED))
        if unneeded and done + unneeded == self.total:
            return f"All {done} stages that are needed are done; {unneeded} are not needed."
        if done == self.total:
            return "The only stage is done." if done == 1 else f"All {done} stages are done."
        others = {status: n for status, n in self.counts.items() if status is not Status.DONE}
        rest = ", ".join(f"{n} {status}" for status, n in others.items())
        verb = "is" if self.total == 1 else "are"
        return f"{done} of {counted(self.total)} {verb} done; {rest}."

    @property
    def seeds_line(self) -> str:
        if len(self.seeds) == 1:
            return f"One seed ({self.seeds[0]}): no intervals, and differences may be chance."
        if not self.seeds:
            return "No training: no result depends on a seed."
        return f"{len(self.seeds)} seeds: {', '.join(map(str, self.seeds))}."


def summarise(results: Sequence[StageResult], findings: Iterable[str]) -> Summary:
    """Summarise the stages of a sweep, with what was found (compare/differences.py)."""
    counts = Counter(result.state.status for result in results)
    needed = [result for result in results if not result.state.is_unneeded]
    return Summary(
        total=len(results),
        counts={status: counts[status] for status in IMPORTANCE if counts[status]},
        seeds=tuple(sorted({r.stage.seed for r in needed if r.stage.seed is not None})),
        cost=cost_of(results),
        time_lost=time_lost(results),
        findings=tuple(findings),
        missing=tuple(
            f"{result.stage.label}: {result.state.status}: {result.state.reason}"
            for result in sorted(needed, key=lambda result: IMPORTANCE.index(result.state.status))
            if not result.state.is_done
        ),
    )
