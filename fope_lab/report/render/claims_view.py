"""The verdicts on claims as people read them: grouped by claim, with marks and short texts; and
what the rule for the seeds of a sweep has done."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.problems import counted
from fope_lab.report.build import Report
from fope_lab.report.claims.judge import VERDICTS, Verdict, VerdictWord
from fope_lab.report.claims.samples import format_p
from fope_lab.report.compare.comparability import MARK
from fope_lab.report.results.layout import short_names
from fope_lab.stages.labels import axis_label, stage_label
from fope_lab.statistics.decision import ALPHA
from fope_lab.sweep.sweep_file import StoppedEarly

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
"""How many trainings are listed one by one; the JSON has all."""


@dataclass(frozen=True)
class VerdictView:
    """A verdict and the values of the axes that its claim leaves open."""

    where: tuple[str, ...]
    verdict: Verdict

    @property
    def mark(self) -> str:
        return MARKS[self.verdict.verdict]

    @property
    def p(self) -> str:
        if self.verdict.p is None:
            return ""
        adjusted = self.verdict.adjusted_p
        also = "" if adjusted is None else f", adjusted {format_p(adjusted)}"
        return f"{format_p(self.verdict.p)}{also}"

    @property
    def numbers(self) -> str:
        if self.verdict.is_exact:
            return "exact"
        looks = self.verdict.looks
        looked = "" if looks is None else counted(looks, "look")
        return ", ".join(filter(None, [self.p, f"n = {self.verdict.n}", looked]))

    @property
    def seeds(self) -> str:
        """The number of seeds, or that there are none."""
        return "exact" if self.verdict.is_exact else str(self.verdict.n)

    @property
    def why(self) -> str:
        """The reason, the seeds that were added, what would decide the claim, and what else the
        models differ in."""
        verdict, parts = self.verdict, [self.verdict.reason]
        if len(verdict.added) == 1:
            parts.append(f"seed {verdict.added[0]} was added for it")
        elif verdict.added:
            parts.append(f"seeds {verdict.added[0]} to {verdict.added[-1]} were added for it")
        if verdict.would_decide is not None:
            parts.append(verdict.would_decide.words)
        if verdict.unequal:
            parts.append(f"{MARK} the models differ in {', '.join(verdict.unequal)}")
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts, and the names of the axes that set them apart. `basis` is what the
    claim stands for, in words; empty if its file does not say."""

    text: str
    basis: str
    axes: tuple[str, ...]
    rows: tuple[VerdictView, ...]

    @property
    def counts(self) -> str:
        return count_words(row.verdict.verdict for row in self.rows)

    @property
    def several(self) -> bool:
        return len(self.rows) > 1

    @property
    def folded(self) -> bool:
        return len(self.rows) > MOST_OPEN

    def where(self, row: VerdictView) -> str:
        """The combination of a verdict in words; empty if the claim leaves no axis open."""
        return ", ".join(f"{a} {value}" for a, value in zip(self.axes, row.where, strict=True))


def count_words(words: Iterable[VerdictWord]) -> str:
    """Count the verdicts by word, as in "2 hold, 1 fails, 3 undecided"."""
    counts = Counter(words)
    return ", ".join(
        f"{counts[word]} {word if counts[word] == 1 else _PLURALS.get(word, word)}"
        for word in VERDICTS
        if counts[word]
    )


def group_by_basis(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, list[ClaimView]]]:
    """Group the verdicts by claim, and yield what neighbouring claims stand for, and these claims;
    in the order of the verdicts."""
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
    for basis, group in itertools.groupby(claims, lambda claim: claim.basis):
        yield basis, list(group)


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
    which = "one verdict that was" if len(tested) == 1 else f"{len(tested)} verdicts that were"
    return (
        f"Of the {which} tested, about {expected:.2g} would be decided by chance if no difference"
        " existed."
    )


def describe_tests(verdicts: Sequence[Verdict]) -> str:
    """The rules that decide claims, in words."""
    looked = any(verdict.looks is not None for verdict in verdicts)
    by = "a paired t-test after each seed" if looked else "Student's paired t-test over seeds"
    level = f"α = {ALPHA:g}" + " for all looks together" * looked
    parts = [
        f"Claims are decided by {by}, {level}:"
        " two-sided for an order or a trend, one-sided for a claim with a margin. A claim"
        " of several parts, such as a chain, holds if every part is significant"
        " (intersection–union), and fails if a part is significant in the other direction"
        " at α divided by their number (Bonferroni).",
        describe_chance(verdicts),
        "One seed decides nothing. Accuracies are compared only if all models learned the"
        " task within their training length. Numbers that no model makes are compared"
        " exactly.",
    ]
    return " ".join(filter(None, parts))


def seed_lines(report: Report) -> Iterator[str]:
    """The rule for seeds, and what it did; nothing for a sweep with a list of seeds."""
    rule = report.seed_rule
    if rule is None:
        return
    always = (
        f"Seeds 0 to {rule.always - 1} always run." if rule.always > 1 else "Seed 0 always runs."
    )
    if isinstance(rule.until, StoppedEarly):
        wanted = rule.until.stopped_early
        yield (
            f"{always} Seeds were added to each training until {wanted} of its seeds had stopped"
            f" early, up to {rule.at_most} in all. Means are over the first {wanted} that stopped"
            f" early; where none did, over the first {wanted} seeds."
        )
        yield from _stopped(report)
        if report.verdicts:
            yield "A claim about several trainings uses the seeds that count for all of them."
        return
    looks = [verdict.looks for verdict in report.verdicts if verdict.looks is not None]
    looked = "There was 1 look" if sum(looks) == 1 else f"There were {sum(looks)} looks"
    seeds = sorted({seed for verdict in report.verdicts for seed in verdict.added})
    numbers = ", ".join(map(str, seeds))
    added = f"seed{'s' * (len(seeds) > 1)} {numbers}" if seeds else "none was needed"
    yield (
        f"{always} For claims that were undecided, seeds were added one at a time, up to"
        f" {rule.at_most} in all; {added}. {looked} at"
        f" {counted(len(looks), 'verdict')}. Each verdict is that of a sequential t-test, whose"
        f" error rate over all looks is at most {ALPHA:g} (error spending: Lan & DeMets 1983;"
        " exact for normal differences: Jennison & Turnbull 1991). It stays so if at_most is"
        " raised and the sweep run again."
    )
    yield (
        "Every ± is for a number of seeds that is fixed beforehand, and so are the marks of a"
        " difference: they make no allowance for the looks. Verdicts and bold marks do."
    )
    if any(verdict.adjusted_p is not None for verdict in report.verdicts):
        corrected = sum(not verdict.is_exact for verdict in report.verdicts)
        yield (
            f"A claim gets no more seeds once its own p is below {ALPHA:g} / {corrected}"
            " (Bonferroni). The verdicts use Holm's correction, which may decide a claim sooner."
        )


def _stopped(report: Report) -> Iterator[str]:
    trainings = report.counted_seeds
    for one in trainings[:MOST_TRAININGS]:
        label = stage_label(one.training.section, one.training.axes, None)
        numbers = ", ".join(map(str, one.counted))
        counts = f"seeds {numbers} count" if len(one.counted) > 1 else f"seed {numbers} counts"
        if not one.counted:
            counts = "no seed counts yet"
        open_ = "" if one.settled else ", and seeds may still be added"
        stopped = (
            f"{len(one.stopped)} of the {counted(len(one.ran), 'finished seed')} stopped early"
        )
        yield f"{label}: {counts}; {stopped}{open_}."
    if len(trainings) > MOST_TRAININGS:
        yield f"The JSON has the other {len(trainings) - MOST_TRAININGS} trainings."
