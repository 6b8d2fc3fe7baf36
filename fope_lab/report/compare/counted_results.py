"""The results of a sweep that count: those of the seeds that its rule for seeds counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fope_lab.report.compare.claim_case import Case, StageSeconds
from fope_lab.report.compare.claims import Verdict, judge_cases, read_cases
from fope_lab.report.compare.seed_needs import (
    EarlyStopNeeds,
    judge_by_looks,
    seed_needs,
    seed_test_of,
    with_needs,
)
from fope_lab.report.results.stage_results import StageResult, read_stages
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.seed_rule import StoppedEarly


@dataclass(frozen=True)
class CountedResults:
    """Every stage of a sweep, in the state that the rule for its seeds gives it, and the `counted`
    ones: without those that are not needed, and those whose seed the rule does not count."""

    stages: tuple[StageResult, ...]
    counted: tuple[StageResult, ...]


def read_counted(sweep: Sweep, store: Store) -> CountedResults:
    """Read the stages of a sweep, and tell which of them count."""
    results = read_stages(sweep.stages, store)
    if sweep.seed_rule is None:
        return CountedResults(results, results)
    needs = seed_needs(sweep).needs({result.stage.key: result for result in results})
    states = with_needs({result.stage.key: result.state for result in results}, needs)
    stages = tuple(replace(result, state=states[result.stage.key]) for result in results)
    counted = tuple(
        result
        for result in stages
        if not result.state.is_unneeded and result.stage.key not in needs.uncounted
    )
    return CountedResults(stages, counted)


def judge_sweep(
    sweep: Sweep, results: CountedResults, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """The verdicts on the claims of a sweep, by the test that the rule for its seeds asks for."""
    rule = sweep.seed_rule
    if rule is not None and not isinstance(rule.until, StoppedEarly):
        by_key = {result.stage.key: result for result in results.stages}
        return judge_by_looks(sweep, rule, by_key, seconds)
    by_key = {result.stage.key: result for result in results.stages}
    counted = frozenset(result.stage.key for result in results.counted)
    cases = read_cases(sweep.report, sweep.by_section, by_key, seed_test_of(sweep))
    return judge_cases([_of(case, counted) for case in cases], sweep.report, seconds)


def _of(case: Case, counted: frozenset[str]) -> Case:
    """The claim over those of its stages that count."""
    series = tuple(
        replace(one, stages={seed: s for seed, s in one.stages.items() if s.key in counted})
        for one in case.combination.series
    )
    return replace(case, combination=replace(case.combination, series=series))


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
    """Which seeds of each training count, where seeds are added until some have stopped early."""
    rule = sweep.seed_rule
    if rule is None or not isinstance(rule.until, StoppedEarly):
        return ()
    results = {result.stage.key: result for result in stages}
    needs = EarlyStopNeeds(sweep, rule, rule.until)
    return tuple(
        CountedSeeds(
            training[0],
            tuple(n for n, stage in enumerate(training) if results[stage.key].state.is_done),
            seeds.stopped,
            seeds.counted,
            seeds.asked == seeds.may_ask,
        )
        for training, seeds in zip(needs.trainings, needs.follow(results), strict=True)
    )
