"""The verdicts on claims as people read them: grouped by claim, with marks and short texts; and
what the rule for the seeds of a sweep has done."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import VERDICTS, Verdict, VerdictWord
from fope_lab.report.claims.reasons import format_p
from fope_lab.report.claims.until_stopped import CountedSeeds
from fope_lab.report.compare.comparability import MARK
from fope_lab.report.results.axes import short_names
from fope_lab.stages.labels import axis_label, stage_label
from fope_lab.statistics.t_test import ALPHA
from fope_lab.sweep.seed_rule import SeedRule, StoppedEarly

MARKS: Mapping[VerdictWord, str] = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "?",
    "not trained": "–",
}
_PLURALS: Mapping[VerdictWord, str] = {"holds": "hold", "fails": "fail"}
MOST_OPEN = 12
"""The page folds the verdicts of a claim that has more of them."""
MOST_TRAININGS = 40
"""How many trainings are told one by one; the JSON has all."""


@dataclass(frozen=True)
class VerdictView:
    """A verdict and the values of the axes that its claim leaves open."""

    where: tuple[str, ...]
    verdict: Verdict

    @property
    def mark(self) -> str:
        """The sign of the verdict's word."""
        return MARKS[self.verdict.verdict]

    @property
    def p(self) -> str:
        """The p-value and the adjusted one; empty if nothing was tested."""
        if self.verdict.p is None:
            return ""
        adjusted = self.verdict.adjusted_p
        also = "" if adjusted is None else f", adjusted {format_p(adjusted)}"
        return f"{format_p(self.verdict.p)}{also}"

    @property
    def n(self) -> str:
        """The number of seeds, or that there are none."""
        return "no seeds" if self.verdict.is_exact else f"n = {self.verdict.n}"

    @property
    def numbers(self) -> str:
        """The p-value, and the numbers of seeds and of looks."""
        looks = self.verdict.looks
        looked = "" if looks is None else f"{looks} look{'' if looks == 1 else 's'}"
        parts = filter(None, [self.p, self.n, looked])
        return "exact" if self.verdict.is_exact else ", ".join(parts)

    @property
    def why(self) -> str:
        """The reason, the seeds that were added, what would decide the claim, and what else the
        models differ in."""
        parts = [self.verdict.reason, added_for(self.verdict.added)]
        if self.verdict.would_decide is not None:
            parts.append(self.verdict.would_decide.words)
        if self.verdict.unequal:
            parts.append(f"{MARK} the models differ in {', '.join(self.verdict.unequal)}")
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts, and the names of the axes that set them apart.

    `basis` is what the claim stands for, in words; empty if its file does not say.
    """

    text: str
    basis: str
    axes: tuple[str, ...]
    rows: tuple[VerdictView, ...]

    @property
    def counts(self) -> str:
        """How many verdicts have each word."""
        return count_verdicts(row.verdict for row in self.rows)

    @property
    def several(self) -> bool:
        """Whether the claim has several verdicts, and so a table of its own."""
        return len(self.rows) > 1

    def where(self, row: VerdictView) -> str:
        """The combination of a verdict in words; empty if the claim leaves no axis open."""
        return ", ".join(f"{a} {value}" for a, value in zip(self.axes, row.where, strict=True))

    @property
    def folded(self) -> bool:
        """Whether there are too many verdicts to show them all at once."""
        return len(self.rows) > MOST_OPEN


def added_for(seeds: Sequence[int]) -> str:
    """Which seeds were added for a verdict, such as "seeds 5 to 8 were added for it"."""
    if not seeds:
        return ""
    if len(seeds) == 1:
        return f"seed {seeds[0]} was added for it"
    return f"seeds {seeds[0]} to {seeds[-1]} were added for it"


def count_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Count the verdicts by word, as in "2 hold, 1 fails, 3 undecided"."""
    return count_words(verdict.verdict for verdict in verdicts)


def count_words(words: Iterable[VerdictWord]) -> str:
    """Count the words of verdicts, as `count_verdicts` does."""
    counts = Counter(words)
    return ", ".join(
        f"{counts[word]} {word if counts[word] == 1 else _PLURALS.get(word, word)}"
        for word in VERDICTS
        if counts[word]
    )


def group_verdicts(verdicts: Iterable[Verdict]) -> tuple[ClaimView, ...]:
    """Group the verdicts by claim, in their order."""
    by_claim: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_claim.setdefault(verdict.text, []).append(verdict)
    claims = []
    for text, members in by_claim.items():
        paths = list(dict.fromkeys(path for verdict in members for path in verdict.axes))
        names = short_names(paths)
        rows = [VerdictView(tuple(axis_label(v.axes, p) for p in paths), v) for v in members]
        basis = "" if members[0].basis is None else str(members[0].basis)
        claims.append(ClaimView(text, basis, tuple(names[path] for path in paths), tuple(rows)))
    return tuple(claims)


def group_by_basis(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, tuple[ClaimView, ...]]]:
    """Yield what neighbouring claims stand for, and these claims; in the order of the verdicts."""
    for basis, claims in itertools.groupby(group_verdicts(verdicts), lambda claim: claim.basis):
        yield basis, tuple(claims)


def describe_chance(verdicts: Iterable[Verdict]) -> str:
    """How many verdicts come out by chance, in a sentence; empty if nothing was tested."""
    tested = [verdict for verdict in verdicts if verdict.by_chance]
    if not tested:
        return ""
    if any(verdict.adjusted_p is not None for verdict in tested):
        return (
            "The p-values are adjusted for all verdicts of the file (Holm): the chance that any of"
            f" them is wrong is at most {ALPHA:g}."
        )
    expected = sum(verdict.by_chance for verdict in tested)
    one = len(tested) == 1
    return (
        f"Of {'the one verdict' if one else f'the {len(tested)} verdicts'} that"
        f" {'was' if one else 'were'} tested, about {expected:.2g} would be decided by chance if"
        " no difference existed."
    )


def describe_tests(verdicts: Sequence[Verdict]) -> str:
    """The rules that decide claims, in words."""
    looked = any(verdict.looks is not None for verdict in verdicts)
    by = "a paired t-test after each seed" if looked else "Student's paired t-test over seeds"
    level = f"α = {ALPHA:g}" + " for all looks together" * looked
    return " ".join(
        filter(
            None,
            [
                f"Claims are decided by {by}, {level}:"
                " two-sided for an order or a trend, one-sided for a claim with a margin. A claim"
                " of several parts, such as a chain, holds if every part is significant"
                " (intersection–union), and fails if a part is significant in the other direction"
                " at α divided by their number (Bonferroni).",
                describe_chance(verdicts),
                "One seed decides nothing. Accuracies are compared only if all models learned the"
                " task within their training length. Numbers that no model makes are compared"
                " exactly.",
            ],
        )
    )


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
