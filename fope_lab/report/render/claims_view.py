"""Verdicts on claims as people read them: grouped by claim, in a terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.compare.claims import VERDICTS, Verdict, VerdictWord, format_p
from fope_lab.report.compare.paired import ALPHA
from fope_lab.report.render.markdown_text import escaped, grid
from fope_lab.report.results.axes import short_names
from fope_lab.stages.labels import label

MARKS: Mapping[VerdictWord, str] = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "?",
    "not trained": "–",
}
_SEVERAL: Mapping[VerdictWord, str] = {"holds": "hold", "fails": "fail"}
PRINTED = 40
"""Verdicts in a terminal."""
OPEN = 12
"""A claim with more verdicts is folded in the page."""


@dataclass(frozen=True)
class VerdictView:
    """A verdict beside the values of the axes that its claim leaves open."""

    where: tuple[str, ...]
    verdict: Verdict

    @property
    def mark(self) -> str:
        """A sign for the word."""
        return MARKS[self.verdict.verdict]

    @property
    def numbers(self) -> str:
        """The p-value and the number of seeds."""
        p = "" if self.verdict.p is None else f"{format_p(self.verdict.p)}, "
        return f"{p}n = {self.verdict.n}"

    @property
    def why(self) -> str:
        """The reason, and what else the models differ in."""
        unequal = self.verdict.unequal
        also = f"; ‡ the models differ in {', '.join(unequal)}" if unequal else ""
        return f"{self.verdict.reason}{also}"


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts, and the names of the axes that tell them apart."""

    text: str
    axes: tuple[str, ...]
    rows: tuple[VerdictView, ...]

    @property
    def counts(self) -> str:
        """How many verdicts of each word."""
        return count_verdicts(row.verdict for row in self.rows)

    @property
    def several(self) -> bool:
        """Whether it has a table of its own."""
        return len(self.rows) > 1

    def where(self, row: VerdictView) -> str:
        """The combination of a verdict; empty where the claim leaves no axis open."""
        named = zip(self.axes, row.where, strict=True)
        return ", ".join(f"{axis} {value}" for axis, value in named)

    @property
    def folded(self) -> bool:
        """Whether there are too many verdicts to show at once."""
        return len(self.rows) > OPEN


def count_verdicts(verdicts: Iterable[Verdict]) -> str:
    """2 hold, 1 fails, 3 undecided."""
    found = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(
        f"{found[word]} {word if found[word] == 1 else _SEVERAL.get(word, word)}"
        for word in VERDICTS
        if found[word]
    )


def group_verdicts(verdicts: Iterable[Verdict]) -> tuple[ClaimView, ...]:
    """The verdicts by claim, in their order."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.text, []).append(verdict)
    shown = []
    for text, group in groups.items():
        paths = list(dict.fromkeys(path for verdict in group for path in verdict.axes))
        names = short_names(paths)
        rows = [
            VerdictView(tuple(label(v.axes[p]) if p in v.axes else "–" for p in paths), v)
            for v in group
        ]
        shown.append(ClaimView(text, tuple(names[path] for path in paths), tuple(rows)))
    return tuple(shown)


def print_claims(verdicts: Sequence[Verdict], line: Callable[[str], None]) -> None:
    """A line for each verdict under its claim; `line` prints one."""
    if not verdicts:
        return
    line(f"Claims: {count_verdicts(verdicts)}.")
    left = PRINTED
    for claim in group_verdicts(verdicts):
        if left == 0:
            break
        line(f"  {claim.text}{f': {claim.counts}' if claim.several else ''}")
        for row in claim.rows[:left]:
            where = claim.where(row)
            word = f"{row.mark} {row.verdict.verdict}"
            line(f"    {word:<13}  {f'{where}: ' if where else ''}{row.numbers}; {row.why}")
        left -= min(left, len(claim.rows))
    rest = len(verdicts) - PRINTED
    if rest > 0:
        line(f"  and {rest} more; the report lists them all")


def claims_markdown(verdicts: Sequence[Verdict]) -> str:
    """A section with a table of all verdicts; empty if there are none."""
    if not verdicts:
        return ""
    rows = [
        (
            f"`{escaped(row.verdict.text, '|')}`",
            escaped(claim.where(row)),
            f"{row.mark} {row.verdict.verdict}",
            ""
            if row.verdict.p is None
            else escaped(format_p(row.verdict.p).removeprefix("p = ").removeprefix("p ")),
            str(row.verdict.n),
            escaped(row.why),
        )
        for claim in group_verdicts(verdicts)
        for row in claim.rows
    ]
    header = ("claim", "where", "verdict", "p", "n", "why")
    table = grid(header, rows, left=len(header))
    return f"## Claims\n\n{count_verdicts(verdicts)}. {describe_tests()}\n\n{table}\n"


def describe_tests() -> str:
    """What decides, in words."""
    return (
        f"Decided by Student's paired t over seeds, two-sided, α = {ALPHA:g}: of a chain, every"
        " pair must be significant for it to hold (intersection–union), or one against it at α"
        " over the number of pairs (Bonferroni). Each claim is tested by itself: of twenty about"
        " equal models, one is decided by chance. One seed decides nothing, and no accuracy is"
        " compared of models of which one did not learn the task inside the trained length."
    )
