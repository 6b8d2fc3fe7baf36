"""Which stages a sweep with a rule for its seeds needs, by what the store holds of them.

The answer follows from the results alone. So a run that is killed and started again decides as it
would have, and a later run with a larger `at_most` goes on where this one ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fope_lab.report.compare.claim_case import StageSeconds
from fope_lab.report.compare.claim_looks import ClaimLooks
from fope_lab.report.compare.claim_values import Results
from fope_lab.report.compare.claims import Verdict, judge_cases, read_cases
from fope_lab.report.compare.early_stops import TrainingSeeds, follow_stops
from fope_lab.report.results.aggregate import json_value
from fope_lab.statistics.sequential import SequentialT
from fope_lab.statistics.t_test import STUDENT_T, SeedTest
from fope_lab.store import StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.seed_check import may_stop_early
from fope_lab.sweep.seed_rule import SeedRule, StoppedEarly

NOT_YET = "its seed is added if the rule of `seeds` asks for it"
NOT_ASKED = "the rule of `seeds` does not ask for its seed"


@dataclass(frozen=True)
class Needs:
    """The stages that are needed now, by their keys, and those that may be needed later.

    `uncounted` are stages whose results belong in no mean: the rule counts other seeds.
    """

    now: frozenset[str]
    later: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()


def with_needs(states: Mapping[str, StageState], needs: Needs) -> dict[str, StageState]:
    """The states, in which what is not needed by now says so, and what is now needed waits."""
    found = {}
    for key, state in states.items():
        if state.status in (Status.DONE, Status.RUNNING):
            found[key] = state
        elif key in needs.now:
            waits = state.is_unneeded
            found[key] = replace(state, status=Status.WAITING, reason="") if waits else state
        elif key in needs.later:
            found[key] = replace(state, status=Status.IF_NEEDED, reason=NOT_YET)
        else:
            found[key] = replace(state, status=Status.NOT_NEEDED, reason=NOT_ASKED)
    return found


class SeedNeeds(Protocol):
    """Tells what a sweep needs from the results of its stages."""

    def needs(self, results: Results) -> Needs:
        """What is needed, as far as these results tell."""


def seed_needs(sweep: Sweep) -> SeedNeeds:
    """What tells the needs of a sweep."""
    rule = sweep.seed_rule
    if rule is None:
        return AllNeeded(sweep)
    if isinstance(rule.until, StoppedEarly):
        return EarlyStopNeeds(sweep, rule, rule.until)
    return ClaimNeeds(sweep, rule)


def seed_test_of(sweep: Sweep) -> SeedTest:
    """The test over seeds that the rule for the seeds of a sweep asks for.

    Where claims have seeds added, it is the sequential one, whose errors are rare over all looks.
    """
    rule = sweep.seed_rule
    if rule is None or isinstance(rule.until, StoppedEarly):
        return STUDENT_T
    return SequentialT(rule.first)


class AllNeeded:
    """A sweep with a list of seeds needs all of its stages."""

    def __init__(self, sweep: Sweep) -> None:
        self._needs = Needs(frozenset(stage.key for stage in sweep.stages))

    def needs(self, results: Results) -> Needs:
        """All stages, whatever the results are."""
        return self._needs


class ClaimNeeds:
    """A sweep whose claims have seeds added until they are decided."""

    def __init__(self, sweep: Sweep, rule: SeedRule) -> None:
        self._stages, self._first = sweep.stages, rule.first
        self.claims = claims_of(sweep, rule, {})

    def needs(self, results: Results) -> Needs:
        """The first seeds of everything, and what undecided claims compare under more seeds."""
        now: set[str] = set()
        later: set[str] = set()
        for claim in self.claims:
            seeds = claim.seeds(results)
            for member in claim.combination.members:
                for seed, stage in member.items():
                    if seed is not None and seed < seeds.may_ask:
                        (now if seed < seeds.asked else later).add(stage.key)
        now |= {s.key for s in self._stages if s.seed is not None and s.seed < self._first}
        needed = with_ancestors(now | _whole(self._stages), self._stages)
        return Needs(needed, with_ancestors(later, self._stages) - needed)


def claims_of(sweep: Sweep, rule: SeedRule, results: Results) -> list[ClaimLooks]:
    """The claims of a sweep, in its order, each for every combination of its open axes."""
    cases = read_cases(sweep.report, sweep.by_section, results, seed_test_of(sweep))
    tested = sum(not case.combination.is_exact for case in cases)
    verdicts = 1 if sweep.report.correction == "none" else max(tested, 1)
    return [ClaimLooks(case, rule.first, verdicts) for case in cases]


def judge_by_looks(
    sweep: Sweep, rule: SeedRule, results: Results, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """The verdicts of a sweep whose claims have seeds added until they are decided."""
    claims = claims_of(sweep, rule, results)
    found = [claim.seeds(results) for claim in claims]
    cases = [
        claim.case if claim.combination.is_exact else claim.at(seeds.looked or rule.first, results)
        for claim, seeds in zip(claims, found, strict=True)
    ]
    return tuple(
        verdict
        if verdict.is_exact
        else replace(
            verdict,
            looks=seeds.looked and seeds.looked - rule.first + 1,
            added=tuple(range(rule.first, seeds.asked)),
        )
        for verdict, seeds in zip(judge_cases(cases, sweep.report, seconds), found, strict=True)
    )


NOW, LATER, NEVER = range(3)


class EarlyStopNeeds:
    """A sweep whose trainings have seeds added until enough of them have stopped early.

    What comes after a training runs once it is known that the training counts. Of everything that
    does not come after such a training, the first seeds run.
    """

    def __init__(self, sweep: Sweep, rule: SeedRule, until: StoppedEarly) -> None:
        self._stages, self._rule, self._wanted = sweep.stages, rule, until.stopped_early
        self.trainings = tuple(_first_trainings(sweep))

    def follow(self, results: Results) -> list[TrainingSeeds]:
        """How far each of `trainings` is."""
        return [
            follow_stops(
                [results[stage.key] for stage in training],
                self._rule.always,
                self._rule.at_most,
                self._wanted,
            )
            for training in self.trainings
        ]

    def needs(self, results: Results) -> Needs:
        """The trainings that are asked for, and what descends from those that count."""
        own: dict[str, int] = {}
        below: dict[str, int] = {}  # of the stages that start from it
        for training, seeds in zip(self.trainings, self.follow(results), strict=True):
            for seed, stage in enumerate(training):
                asks = LATER if seed < seeds.may_ask else NEVER
                trains = NOW if seed < seeds.asked else asks
                unsure = LATER if results[stage.key].state.is_done else NOW
                counts = NEVER if seed in seeds.out else NOW if seed in seeds.counted else unsure
                own[stage.key] = min(trains, own.get(stage.key, NEVER))
                counts = max(trains, counts)
                below[stage.key] = min(counts, below.get(stage.key, NEVER))
        for stage in self._stages:  # parents come before their children
            inherited = [below[key] for key in stage.parents.values() if key in below]
            if inherited and stage.key not in own:
                own[stage.key] = below[stage.key] = max(inherited)
        now = {key for key, level in own.items() if level == NOW}
        now |= {
            stage.key
            for stage in self._stages
            if stage.key not in own and stage.seed is not None and stage.seed < self._rule.always
        }
        later = {key for key, level in own.items() if level == LATER}
        needed = with_ancestors(now | _whole(self._stages), self._stages)
        return Needs(
            needed,
            with_ancestors(later, self._stages) - needed,
            frozenset(key for key, level in below.items() if level == NEVER),
        )


def _first_trainings(sweep: Sweep) -> Iterable[tuple[Stage, ...]]:
    """The trainings that may stop early and start from no other one that may, each under seeds 0,
    1, 2 …"""
    stages = {stage.key: stage for stage in sweep.stages}
    named = {s.key for found in sweep.by_section.values() for s in found if may_stop_early(s)}
    later = descendants(named, sweep.stages)
    cells: dict[str, dict[int, Stage]] = {}
    for section, found in sweep.by_section.items():
        for stage in found:
            if stage.key in named and stage.key not in later and stage.seed is not None:
                cell = json.dumps([section, json_value(stage.axes)], sort_keys=True)
                cells.setdefault(cell, {}).setdefault(stage.seed, stages[stage.key])
    for seeds in cells.values():
        if sorted(seeds) == list(range(len(seeds))):
            yield tuple(seeds[seed] for seed in range(len(seeds)))


def _whole(stages: Sequence[Stage]) -> set[str]:
    """The stages that no seed concerns and that no stage needs: the file asks for them."""
    parents = {key for stage in stages for key in stage.parents.values()}
    return {stage.key for stage in stages if stage.seed is None and stage.key not in parents}


def with_ancestors(keys: Iterable[str], stages: Sequence[Stage]) -> frozenset[str]:
    """The keys, and those of all stages that they need; `stages` come parents first."""
    found = set(keys)
    for stage in reversed(stages):
        if stage.key in found:
            found.update(stage.parents.values())
    return frozenset(found)


def descendants(keys: Iterable[str], stages: Sequence[Stage]) -> frozenset[str]:
    """The keys of all stages that need one of `keys`; `stages` come parents first."""
    found: set[str] = set()
    roots = frozenset(keys)
    for stage in stages:
        if any(key in roots or key in found for key in stage.parents.values()):
            found.add(stage.key)
    return frozenset(found)
