"""The report as single numbers, which an experiment tracker shows as metrics."""

from __future__ import annotations

from collections import Counter

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import VERDICTS

NumberPath = tuple[str, ...]
"""The parts of a number's name, from its group to the number itself; any text is allowed."""


def report_numbers(report: Report) -> dict[NumberPath, float]:
    """The stages by state, the claims by verdict, and the difference from each published number."""
    numbers: dict[NumberPath, float] = {
        (_name("stages", state),): float(count) for state, count in report.summary.counts.items()
    }
    if report.verdicts:
        counts = Counter(verdict.verdict for verdict in report.verdicts)
        numbers |= {(_name("claims", word),): float(counts[word]) for word in VERDICTS}
    for number in report.paper.numbers if report.paper else ():
        if number.difference is not None:
            numbers["difference", number.label, number.column] = number.difference
    return numbers


def _name(group: str, words: str) -> str:
    return f"{group}_{words.replace(' ', '_')}"
