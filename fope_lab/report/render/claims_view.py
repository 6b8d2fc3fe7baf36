"""The verdicts on claims as people read them: grouped by claim, with marks and short texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.compare.claim_case import VerdictWord
from fope_lab.report.compare.claim_reasons import format_p
from fope_lab.report.compare.claims import VERDICTS, Verdict
from fope_lab.report.compare.comparability_marks import MARK
from fope_lab.report.compare.seed_test import ALPHA
from fope_lab.report.results.axes import short_names
from fope_lab.stages.labels import axis_label

MARKS: Mapping[VerdictWord, str] = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "?",
    "not trained": "–",
}
_PLURALS: Mapping[VerdictWord, str] = {"holds": "hold", "fails": "fail"}
MOST_OPEN = 12
"""The page folds the verdicts of a claim that has more of them."""


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
    def numbers(self) -> str:
        """The p-value, and the numbers of seeds and of looks."""
        p = "" if self.verdict.p is None else f"{format_p(self.verdict.p)}, "
        looks = self.verdict.looks
        counted = "" if looks is None else f", {looks} look{'' if looks == 1 else 's'}"
        return f"{p}n = {self.verdict.n}{counted}"

    @property
    def why(self) -> str:
        """The reason, the seeds that were added, and what else the models differ in."""
        unequal = self.verdict.unequal
        also = f"{MARK} the models differ in {', '.join(unequal)}" if unequal else ""
        return "; ".join(filter(None, [self.verdict.reason, added_for(self.verdict.added), also]))


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts, and the names of the axes that set them apart."""

    text: str
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
    counts = Counter(verdict.verdict for verdict in verdicts)
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
        claims.append(ClaimView(text, tuple(names[path] for path in paths), tuple(rows)))
    return tuple(claims)


def describe_tests() -> str:
    """The rules that decide claims, in words."""
    return (
        f"Claims are decided by Student's paired t-test over seeds, two-sided, α = {ALPHA:g}. A"
        " chain holds if every pair is significant (intersection–union), and fails if a pair is"
        " significant in the other direction at α divided by the number of pairs (Bonferroni)."
        " Each claim is tested on its own: among twenty claims about equal models, about one is"
        " decided by chance. One seed decides nothing. Accuracies are compared only if all models"
        " learned the task within their training length."
    )
