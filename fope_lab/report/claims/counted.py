"""The results that count by the rule for the seeds of a sweep, and the verdicts over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fope_lab.report.claims.judge import StageSeconds, Verdict, judge, read_judgements
from fope_lab.report.claims.needs import Needs, with_needs
from fope_lab.report.claims.samples import Results
from fope_lab.report.claims.until_claims import ClaimNeeds, judge_by_looks
from fope_lab.report.claims.until_stopped import EarlyStopNeeds
from fope_lab.report.results.stage_results import StageResult, read_stages
from fope_lab.statistics.sequential import SequentialT
from fope_lab.statistics.t_test import STUDENT_T, SeedTest
from fope_lab.store import Store
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.seed_rule import StoppedEarly


def seed_needs(sweep: Sweep) -> Callable[[Results], Needs]:
    """Return the function from results to the stages of a sweep that are needed."""
    rule = sweep.seed_rule
    if rule is None:
        all_of_them = Needs(frozenset(stage.key for stage in sweep.stages))
        return lambda results: all_of_them
    if isinstance(rule.until, StoppedEarly):
        return EarlyStopNeeds(sweep, rule, rule.until)
    return ClaimNeeds(sweep, rule)


def seed_test_of(sweep: Sweep) -> SeedTest:
    """Return the test over seeds that the rule for the seeds of a sweep asks for.

    Where claims have seeds added, it is the sequential one, whose errors are rare over all looks.
    """
    rule = sweep.seed_rule
    if rule is None or isinstance(rule.until, StoppedEarly):
        return STUDENT_T
    return SequentialT(rule.first)


@dataclass(frozen=True)
class CountedResults:
    """Every stage of a sweep, in the state that the rule for its seeds gives it, and the `counted`
    ones: without those that are not needed, and those whose seed the rule does not count."""

    stages: tuple[StageResult, ...]
    counted: tuple[StageResult, ...]


def read_counted(sweep: Sweep, store: Store) -> CountedResults:
    """Read the stages of a sweep, and find out which of them count."""
    results = read_stages(sweep.stages, store)
    if sweep.seed_rule is None:
        return CountedResults(results, results)
    needs = seed_needs(sweep)({result.stage.key: result for result in results})
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
    """Return the verdicts on a sweep's claims, by the test that the rule for its seeds asks for."""
    rule = sweep.seed_rule
    by_key = {result.stage.key: result for result in results.stages}
    if rule is not None and not isinstance(rule.until, StoppedEarly):
        return judge_by_looks(sweep, rule, by_key, seconds)
    counted = frozenset(result.stage.key for result in results.counted)
    judgements = read_judgements(sweep.report, sweep.by_section, by_key, seed_test_of(sweep))
    over_counted = [one.over(lambda stage: stage.key in counted) for one in judgements]
    return judge(over_counted, sweep.report, seconds)
