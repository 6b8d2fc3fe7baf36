"""Verdicts on the claims of a sweep file: a test over seeds for each combination of the axes.

A claim about a task that a model may fail to learn is judged only where all compared models have
learned it inside the trained length: that one guesses worse than another beyond it says nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from fope_lab.report.compare.paired import ALPHA, Decision, PairedTest, decide, paired_t
from fope_lab.report.compare.training_history import differences
from fope_lab.report.results.aggregate import json_value
from fope_lab.report.results.measurements import read_measurements
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import Measurement, MetricPoint
from fope_lab.store import Status
from fope_lab.sweep.claims.comparison import Combination, Comparison, Seeds, compare
from fope_lab.sweep.claims.grammar import Order, parse_claim
from fope_lab.sweep.claims.selection import Catalogue, Selected
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection

Seed = int | None
VerdictWord = Decision | Literal["not trained"]
SIGNS: Mapping[Order, int] = {">": 1, "<": -1}
VERDICTS: tuple[VerdictWord, ...] = ("holds", "fails", "undecided", "not trained")


@dataclass(frozen=True)
class Verdict:
    """What became of a claim under one combination of the axes that it leaves open.

    `n` seeds have all that is compared, of a chain its worst pair; `p` is None where nothing was
    tested. `reason` has the numbers, `unequal` what else the compared models differ in.
    """

    text: str
    axes: Mapping[str, Any]
    verdict: VerdictWord
    p: float | None
    n: int
    test: str
    reason: str
    unequal: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The verdict as `report --json` gives it."""
        return {
            "text": self.text,
            "axes": json_value(self.axes),
            "verdict": self.verdict,
            "p": self.p,
            "n": self.n,
            "test": self.test,
            "reason": self.reason,
            "unequal": list(self.unequal),
        }


def judge_claims(
    section: ReportSection,
    by_name: Mapping[str, Sequence[Stage]],
    readings: Iterable[StageResult],
) -> tuple[Verdict, ...]:
    """Every verdict on the claims of a checked sweep file, in its order.

    `by_name` are the stages of each name in the file; `readings` hold the results of all of them.
    """
    catalogue = Catalogue(by_name)
    results = _Results({reading.stage.key: reading for reading in readings})
    verdicts = []
    for text in section.claims:
        comparison = compare(parse_claim(text), catalogue)
        for combination in comparison.combinations:
            verdicts.append(_judge(text, comparison, combination, results, section.learnt))
    return tuple(verdicts)


class _Results:
    """What the stages measured, each read when it is first asked for."""

    def __init__(self, readings: Mapping[str, StageResult]) -> None:
        self.readings = readings
        self._measured: dict[str, dict[MetricPoint, Measurement]] = {}

    def measured(self, stage: Stage) -> dict[MetricPoint, Measurement]:
        """All that a stage measured."""
        if stage.key not in self._measured:
            self._measured[stage.key] = read_measurements(self.readings[stage.key])
        return self._measured[stage.key]

    def values(self, seeds: Seeds, place: MetricPoint) -> dict[Seed, float]:
        """One number of the stages that have it, by seed."""
        found = {seed: self.measured(stage).get(place) for seed, stage in seeds.items()}
        return {seed: one.value for seed, one in found.items() if one is not None}


@dataclass(frozen=True)
class _Term:
    """One of the models that are compared: how the claim calls it, its stages, its numbers."""

    name: str
    stages: Seeds
    values: Mapping[Seed, float]


@dataclass(frozen=True)
class _Pair:
    """Two terms beside each other, over the seeds that have a value of both."""

    one: _Term
    other: _Term

    @property
    def seeds(self) -> list[Seed]:
        return [seed for seed in self.one.values if seed in self.other.values]

    @property
    def test(self) -> PairedTest:
        return paired_t([self.one.values[seed] - self.other.values[seed] for seed in self.seeds])


def _judge(
    text: str, comparison: Comparison, combination: Combination, results: _Results, learnt: float
) -> Verdict:
    claim, selected = comparison.claim, comparison.selected
    terms = [
        _Term(name, seeds, results.values(seeds, (selected.metric.name, claim.x)))
        for name, seeds in zip(comparison.names, combination.members, strict=True)
    ]
    pairs = [_Pair(one, other) for one, other in pairwise(terms)]
    n = min(len(pair.seeds) for pair in pairs)
    word, p, reason = _decided(pairs, selected.metric, SIGNS[claim.order])
    if selected.mastery is not None and (unlearned := _unlearned(terms, selected, learnt, results)):
        word, p, reason = "not trained", None, unlearned
    return Verdict(
        text=text,
        axes=combination.axes,
        verdict=word,
        p=p,
        n=n,
        test=_named_test(n, len(pairs)),
        reason="; ".join([reason, *_gaps(terms, results)]),
        unequal=_unequal(pairs, results),
    )


def _decided(
    pairs: Sequence[_Pair], metric: Metric, sign: int
) -> tuple[VerdictWord, float | None, str]:
    """Verdict, p-value and reason, by the numbers alone."""
    if odd := _odd(pairs, metric):
        return "undecided", None, f"{odd}: what is not finite decides nothing"
    fewest = min(pairs, key=lambda pair: len(pair.seeds))
    if not fewest.seeds:
        return "undecided", None, f"no seed has both {fewest.one.name} and {fewest.other.name}"
    tests = [pair.test for pair in pairs]
    word, p = decide(tests, sign)
    return word, p, _numbers(pairs, tests, metric)


def _odd(pairs: Sequence[_Pair], metric: Metric) -> str:
    """The values that are not finite numbers, of the seeds that are compared."""
    found = {
        f"{term.name} is {metric.format(term.values[seed])} under seed {seed}": None
        for pair in pairs
        for term in (pair.one, pair.other)
        for seed in pair.seeds
        if not math.isfinite(term.values[seed])
    }
    return ", ".join(found)


def _numbers(pairs: Sequence[_Pair], tests: Sequence[PairedTest], metric: Metric) -> str:
    """The means, and each pair's mean difference with its interval and p-value."""
    means: dict[str, str] = {}
    for pair in pairs:
        for term in (pair.one, pair.other):
            mean = statistics.fmean(term.values[seed] for seed in pair.seeds)
            means.setdefault(term.name, f"{term.name} {metric.format(mean)}")
    parts = [f"means {', '.join(means.values())}"]
    for pair, test in zip(pairs, tests, strict=True):
        several = len(pairs) > 1
        of = f" {pair.one.name} − {pair.other.name}" if several else ""
        p = f", {format_p(test.p)}" if several and test.p is not None else ""
        parts.append(f"difference{of} {_difference(test)}{p}")
    return "; ".join(parts)


def _difference(test: PairedTest) -> str:
    mean, ci95 = test.differences.mean, test.differences.ci95
    words = "too large to compute with" if mean is None else _signed(mean)
    if test.differences.n == 1:
        return f"{words}: one seed decides nothing"
    if ci95 is None:
        return f"{words}, without an interval"
    if ci95[0] == ci95[1]:
        few = test.p is None
        return f"{words} under each seed" + ": two equal differences decide nothing" * few
    return f"{words}, 95 % interval {_signed(ci95[0])} to {_signed(ci95[1])}"


def format_p(p: float) -> str:
    """A p-value to two digits: p = 0.034."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _named_test(n: int, pairs: int) -> str:
    """A sentence that names the test."""
    seeds = f"{n} seeds" if n > 1 else "seeds, of which it needs 2"
    words = f"paired t over {seeds}, two-sided, α = {ALPHA:g}"
    if pairs == 1:
        return words
    return (
        f"{words}; of {pairs} pairs all must be significant for the claim (intersection–union), or"
        f" one against it at α / {pairs} (Bonferroni)"
    )


def _gaps(terms: Sequence[_Term], results: _Results) -> list[str]:
    """Which stages gave no value, and what became of them; nothing if all did."""
    parts = []
    for term in terms:
        gaps: dict[Status, list[str]] = {}
        for seed, stage in term.stages.items():
            if seed not in term.values:
                status = results.readings[stage.key].state.status
                gaps.setdefault(status, []).append(str(seed))
        for status, seeds in gaps.items():
            words = "done without this value" if status is Status.DONE else status
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            which = "every seed" if len(seeds) == len(term.stages) else which
            parts.append(f"{term.name} under {which} ({words})")
    return [f"missing: {', '.join(parts)}"] if parts else []


def _unlearned(terms: Sequence[_Term], selected: Selected, learnt: float, results: _Results) -> str:
    """Why the models that gave values did not learn the task; empty if all did."""
    reasons = []
    for term in terms:
        if not term.values:
            continue
        inside, where = _inside({s: term.stages[s] for s in term.values}, selected, results)
        if not inside:
            reasons.append(f"{term.name}: {where}")
        elif poor := {seed: value for seed, value in inside.items() if not value >= learnt}:
            # A mean over seeds of which some never got to know the task says little of the others.
            seed = min(poor, key=lambda one: poor[one])
            found = f"{poor[seed]:.3f}" + (f" under seed {seed}" if len(inside) > 1 else "")
            reasons.append(f"{term.name} has {found} {where}, which is under {learnt:g}")
    return "; ".join(reasons)


def _inside(
    stages: Mapping[int | None, Stage], selected: Selected, results: _Results
) -> tuple[dict[int | None, float], str]:
    """Each seed's accuracy inside the trained length, and where that is; nothing, and why."""
    inside = {}
    for seed, stage in stages.items():
        measured = results.measured(stage)
        place, where = _place_inside(measured, selected, results.readings[stage.key].train_length)
        if place is None or place not in measured:
            return {}, where
        inside[seed] = measured[place].value
    return inside, where


def _place_inside(
    measured: Mapping[MetricPoint, Measurement], selected: Selected, length: int | None
) -> tuple[MetricPoint | None, str]:
    """The number that tells what a model learned: the curve's own at the longest x that it was
    trained at, or the metric that says it."""
    metric, mastery = selected.metric, selected.mastery
    assert mastery is not None
    if mastery != metric:
        return (mastery.name, None), f"as {mastery.label} inside the trained length"
    if length is None:
        return None, "the length that it was trained at is not known"
    xs = [x for name, x in measured if name == metric.name and x is not None]
    short = [x for x in xs if x <= length]
    if not short:
        return None, f"nothing was read inside the trained length {length}"
    return (metric.name, max(short)), f"at {max(short)}, inside the trained length {length}"


def _unequal(pairs: Sequence[_Pair], results: _Results) -> tuple[str, ...]:
    """What else than their embeddings the models of each pair differ in, of the first seed in which
    they do."""
    found: dict[str, None] = {}
    for pair in pairs:
        of = f"{pair.one.name} and {pair.other.name}: " if len(pairs) > 1 else ""
        for seed in pair.one.stages.keys() & pair.other.stages.keys():
            keys = [term.stages[seed].key for term in (pair.one, pair.other)]
            if words := differences(results.readings, *keys):
                found |= dict.fromkeys(f"{of}{word}" for word in words)
                break
    return tuple(found)
