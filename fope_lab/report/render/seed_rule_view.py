"""What a rule for the seeds of a sweep has done, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.claims.until_stopped import CountedSeeds
from fope_lab.stages.labels import stage_label
from fope_lab.statistics.t_test import ALPHA
from fope_lab.sweep.seed_rule import SeedRule, StoppedEarly

MOST_TRAININGS = 40
"""How many trainings are told one by one; the JSON has all."""


def seed_lines(report: Report) -> list[str]:
    """The rule, and what it did; empty for a sweep with a list of seeds."""
    rule = report.seed_rule
    if rule is None:
        return []
    if isinstance(rule.until, StoppedEarly):
        lines = list(_of_stops(report.counted_seeds, rule, rule.until.stopped_early))
        common = "A claim about several trainings uses the seeds that count for all of them."
        return [*lines, common] if report.verdicts else lines
    looks = [verdict.looks for verdict in report.verdicts if verdict.looks is not None]
    added = sorted({seed for verdict in report.verdicts for seed in verdict.added})
    return [
        f"{_first(rule)} For claims that were undecided, seeds were added one at a time, up to"
        f" {rule.at_most} in all; {_added(added)}. {_looks(sum(looks))} at"
        f" {_count(len(looks), 'verdict')}. Each verdict is that of a sequential t-test, whose"
        f" error rate over all looks is at most {ALPHA:g} (error spending: Lan & DeMets 1983;"
        " exact for normal differences: Jennison & Turnbull 1991). It stays so if at_most is"
        " raised and the sweep run again.",
        "Every ± is for a number of seeds that is fixed beforehand, and so are the marks of a"
        " difference: they make no allowance for the looks. Verdicts and bold marks do.",
        *_under_correction(report.verdicts),
    ]


def _under_correction(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """When a claim has its last seed, if the file corrects for the number of its verdicts."""
    corrected = sum(not verdict.is_exact for verdict in verdicts)
    if any(verdict.adjusted_p is not None for verdict in verdicts):
        yield (
            f"A claim gets no more seeds once its own p is below {ALPHA:g} / {corrected}"
            " (Bonferroni). The verdicts use Holm's correction, which may decide a claim sooner."
        )


def _first(rule: SeedRule) -> str:
    if rule.always == 1:
        return "Seed 0 always runs."
    return f"Seeds 0 to {rule.always - 1} always run."


def _added(seeds: Sequence[int]) -> str:
    if not seeds:
        return "none was needed"
    return "seed " * (len(seeds) == 1) + "seeds " * (len(seeds) > 1) + _numbers(seeds)


def _looks(number: int) -> str:
    return "There was 1 look" if number == 1 else f"There were {number} looks"


def _numbers(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds)) or "none"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _of_stops(trainings: Sequence[CountedSeeds], rule: SeedRule, wanted: int) -> Iterator[str]:
    yield (
        f"{_first(rule)} Seeds were added to each training until {wanted} of its seeds had stopped"
        f" early, up to {rule.at_most} in all. Means are over the first {wanted} that stopped"
        f" early; where none did, over the first {wanted} seeds."
    )
    for one in trainings[:MOST_TRAININGS]:
        label = stage_label(one.training.section, one.training.axes, None)
        numbers = _numbers(one.counted)
        counts = f"seeds {numbers} count" if len(one.counted) > 1 else f"seed {numbers} counts"
        if not one.counted:
            counts = "no seed counts yet"
        open_ = "" if one.settled else ", and seeds may still be added"
        stopped = f"{len(one.stopped)} of the {_count(len(one.ran), 'finished seed')} stopped early"
        yield f"{label}: {counts}; {stopped}{open_}."
    if len(trainings) > MOST_TRAININGS:
        yield f"The JSON has the other {len(trainings) - MOST_TRAININGS} trainings."
