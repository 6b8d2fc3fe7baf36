"""A sweep that adds seeds to its trainings until enough of them have stopped early.

For each training with all its seeds, seeds are added until `wanted` of them have stopped early, or
the last seed is done. Means are then over the first `wanted` that did, or, where none did, over the
first `wanted` seeds (Huang et al., arXiv 2410.02140, in their released logs). What comes after a
training runs once it is known that the training counts. Of everything that does not come after such
a training, the first seeds run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fope_lab.report.claims.needs import Needs, needs_of
from fope_lab.report.claims.samples import Results
from fope_lab.report.results.aggregate import json_value
from fope_lab.report.results.stage_results import StageResult
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.report_check import may_stop_early
from fope_lab.sweep.seed_rule import SeedRule, StoppedEarly

STOPPED_EARLY = "stopped_early"
"""What a training records of itself: whether it ended before it had read all its tokens."""
NOW, LATER, NEVER = range(3)


@dataclass(frozen=True)
class TrainingSeeds:
    """The seeds 0 … `asked` − 1 of a training are needed, and those up to `may_ask` may be.

    `stopped` are the seeds that have stopped early so far. `counted` are those that are known to
    count in means, and `out` those that are known not to.
    """

    asked: int
    may_ask: int
    stopped: tuple[int, ...]
    counted: tuple[int, ...]
    out: tuple[int, ...]


def follow_stops(
    training: Sequence[StageResult], first: int, at_most: int, wanted: int
) -> TrainingSeeds:
    """Return which seeds of a training are needed and which count, by what is done of them.

    `training` has its result under each seed, from seed 0 on. A training that is not done, for
    whatever reason, may still stop early, and no other is started in its place.
    """
    seeds = range(min(at_most, len(training)))
    done = [seed for seed in seeds if training[seed].state.is_done]
    stopped = [s for s in done if training[s].record.recorded.get(STOPPED_EARLY) is True]
    ran_out = {seed for seed in done if seed not in stopped}
    asked = min(first, len(seeds))
    while asked < len(seeds) and asked - sum(seed < asked for seed in ran_out) < wanted:
        asked += 1
    found = [seed for seed in stopped if seed < asked]
    may_ask = asked if len(found) >= wanted else len(seeds)
    if len(done) == len(seeds):
        counted = found[:wanted] or list(seeds[:wanted])
    else:  # it counts for sure if fewer than the wanted number can have stopped before it
        counted = [s for s in found if s - sum(other < s for other in ran_out) < wanted]
    # If any stops early, those that do not are out; so are all others once enough are in.
    full = len(counted) == wanted or len(done) == len(seeds)
    out = [
        s for s in seeds if s not in counted and (full or s >= may_ask or (found and s in ran_out))
    ]
    return TrainingSeeds(asked, may_ask, tuple(found), tuple(counted), tuple(out))


class EarlyStopNeeds:
    """What a sweep needs whose trainings have seeds added until enough have stopped early."""

    def __init__(self, sweep: Sweep, rule: SeedRule, until: StoppedEarly) -> None:
        self._stages, self._rule, self._wanted = sweep.stages, rule, until.stopped_early
        self._trainings = tuple(_first_trainings(sweep))

    def follow(self, results: Results) -> Iterator[tuple[tuple[Stage, ...], TrainingSeeds]]:
        """Yield each training under its seeds, and how far it is."""
        for training in self._trainings:
            found = [results[stage.key] for stage in training]
            rule = self._rule
            yield training, follow_stops(found, rule.always, rule.at_most, self._wanted)

    def __call__(self, results: Results) -> Needs:
        """Return the trainings that are asked for, and what descends from those that count."""
        own: dict[str, int] = {}
        below: dict[str, int] = {}  # of the stages that start from it
        for training, seeds in self.follow(results):
            for seed, stage in enumerate(training):
                asks = LATER if seed < seeds.may_ask else NEVER
                trains = NOW if seed < seeds.asked else asks
                unsure = LATER if results[stage.key].state.is_done else NOW
                counts = NEVER if seed in seeds.out else NOW if seed in seeds.counted else unsure
                own[stage.key] = min(trains, own.get(stage.key, NEVER))
                below[stage.key] = min(max(trains, counts), below.get(stage.key, NEVER))
        for stage in self._stages:  # parents come before their children
            inherited = [below[key] for key in stage.parents.values() if key in below]
            if inherited and stage.key not in own:
                own[stage.key] = below[stage.key] = max(inherited)
        now = [key for key, level in own.items() if level == NOW]
        first = [
            stage.key
            for stage in self._stages
            if stage.key not in own and stage.seed is not None and stage.seed < self._rule.always
        ]
        later = [key for key, level in own.items() if level == LATER]
        uncounted = frozenset(key for key, level in below.items() if level == NEVER)
        return needs_of([*now, *first], later, self._stages, uncounted)


def _first_trainings(sweep: Sweep) -> Iterator[tuple[Stage, ...]]:
    """The trainings that may stop early and start from no other one that may, each under seeds 0,
    1, 2 …"""
    stages = {stage.key: stage for stage in sweep.stages}
    named = {s.key for found in sweep.by_section.values() for s in found if may_stop_early(s)}
    later: set[str] = set()
    for stage in sweep.stages:  # parents come before their children
        if any(key in named or key in later for key in stage.parents.values()):
            later.add(stage.key)
    cells: dict[str, dict[int, Stage]] = {}
    for section, found in sweep.by_section.items():
        for stage in found:
            if stage.key in named and stage.key not in later and stage.seed is not None:
                cell = json.dumps([section, json_value(stage.axes)], sort_keys=True)
                cells.setdefault(cell, {}).setdefault(stage.seed, stages[stage.key])
    for seeds in cells.values():
        if sorted(seeds) == list(range(len(seeds))):
            yield tuple(seeds[seed] for seed in range(len(seeds)))


@dataclass(frozen=True)
class CountedSeeds:
    """The seeds of a training: those that ran, those that stopped early, and those that count.

    `settled` says whether others may still be added.
    """

    training: Stage
    ran: tuple[int, ...]
    stopped: tuple[int, ...]
    counted: tuple[int, ...]
    settled: bool


def counted_seeds(sweep: Sweep, stages: Sequence[StageResult]) -> tuple[CountedSeeds, ...]:
    """Return which seeds of each training count, where they are added until some stop early."""
    rule = sweep.seed_rule
    if rule is None or not isinstance(rule.until, StoppedEarly):
        return ()
    results = {result.stage.key: result for result in stages}
    return tuple(
        CountedSeeds(
            training[0],
            tuple(n for n, stage in enumerate(training) if results[stage.key].state.is_done),
            seeds.stopped,
            seeds.counted,
            seeds.asked == seeds.may_ask,
        )
        for training, seeds in EarlyStopNeeds(sweep, rule, rule.until).follow(results)
    )
