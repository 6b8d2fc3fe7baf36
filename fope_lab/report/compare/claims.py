"""Verdicts on the claims of a sweep file, from a test over seeds for each combination of the axes.

A claim about a task that models may fail to learn is judged only if all compared models have
learned the task within their training length. Otherwise the claim would compare guesses. A claim
about numbers that no model makes, such as those of a closed form, is decided exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.compare.claim_case import EXACT, Case, StageSeconds, VerdictWord
from fope_lab.report.compare.claim_values import Results
from fope_lab.report.results.stage_results import StageResult
from fope_lab.statistics.decision import holm
from fope_lab.statistics.power import WouldDecide
from fope_lab.statistics.t_test import ALPHA, STUDENT_T, SeedTest
from fope_lab.sweep.claim_group import Basis
from fope_lab.sweep.claims.comparison import compare
from fope_lab.sweep.claims.grammar import parse_claim
from fope_lab.sweep.claims.selection import Catalogue
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection

VERDICTS: tuple[VerdictWord, ...] = ("holds", "fails", "undecided", "not trained")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a claim for one combination of the axes that the claim leaves open.

    `n` is the number of seeds with a value of every compared number; of several differences, that
    of the one with the fewest, and 0 for what is exact. `p` is None if nothing was tested, and
    `adjusted_p` is p after a correction for all verdicts of the file, None without one. `reason`
    gives the numbers, `unequal` what else the compared models differ in, and `would_decide` how
    many seeds an undecided claim needs, where that can be said. `by_chance` is the rate at which
    the verdict is decided by chance if no difference existed, 0 if nothing was tested. `looks` is
    how often a sequential test has looked, None for another, and `added` are the seeds that the
    claim had added for it. `basis` is what the claim stands for, None if its file does not say.
    """

    text: str
    axes: Mapping[str, Any]
    verdict: VerdictWord
    p: float | None
    n: int
    test: str
    reason: str
    unequal: tuple[str, ...] = ()
    adjusted_p: float | None = None
    would_decide: WouldDecide | None = None
    by_chance: float = 0.0
    looks: int | None = None
    added: tuple[int, ...] = ()
    basis: Basis | None = None

    @property
    def is_exact(self) -> bool:
        """Whether there was nothing random to test."""
        return self.test == EXACT


def judge_claims(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]],
    results: Iterable[StageResult],
    *,
    test: SeedTest = STUDENT_T,
    seconds: StageSeconds | None = None,
) -> tuple[Verdict, ...]:
    """Judge the claims of a checked sweep file, in its order.

    `by_section` holds the stages of each section, and `results` the results of all of them. `test`
    is the test over seeds that every claim is decided by. `seconds` prices the seeds that would
    decide a claim.
    """
    by_key = {result.stage.key: result for result in results}
    return judge_cases(read_cases(section, by_section, by_key, test), section, seconds)


def read_cases(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]],
    results: Results,
    test: SeedTest,
) -> list[Case]:
    """The claims of a checked sweep file, in its order, each for every combination."""
    catalogue = Catalogue(by_section)
    return [
        Case(stated, comparison, combination, results, section.min_in_length_accuracy, test)
        for stated in section.stated
        for comparison in [compare(parse_claim(stated.text), catalogue)]
        for combination in comparison.combinations
    ]


def judge_cases(
    cases: Sequence[Case], section: ReportSection, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """The verdicts on all claims of a file, with its correction for their number."""
    if section.correction == "none":
        return tuple(_verdict(case, None, ALPHA, seconds) for case in cases)
    tested = [case for case in cases if not case.combination.is_exact]
    adjusted = dict(zip(map(id, tested), holm([case.p for case in tested]), strict=True))
    alpha = ALPHA / max(len(tested), 1)
    return tuple(_verdict(case, adjusted.get(id(case)), alpha, seconds) for case in cases)


def _verdict(
    case: Case, adjusted: float | None, alpha: float, seconds: StageSeconds | None
) -> Verdict:
    """The verdict at the adjusted p-value, or at the claim's own; `alpha` is its level alone."""
    word = case.word(case.p if adjusted is None else adjusted)
    return Verdict(
        text=case.stated.text,
        basis=case.stated.basis,
        axes=case.combination.axes,
        verdict=word,
        p=case.p,
        n=case.n,
        test=case.test_words,
        reason=case.reason,
        unequal=case.unequal,
        adjusted_p=adjusted,
        would_decide=case.would_decide(alpha, seconds) if word == "undecided" else None,
        by_chance=case.by_chance,
    )
