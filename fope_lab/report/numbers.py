"""A report in single numbers, as the MLflow run `summary` carries them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from fope_lab.report.compare.claims import VERDICTS

if TYPE_CHECKING:
    from fope_lab.report.build import Report


def report_numbers(report: Report) -> dict[str, float]:
    """Stages by state, claims by verdict, and ours less each published number that we have."""
    found = {f"stages_{state.replace(' ', '_')}": n for state, n in report.summary.counts.items()}
    verdicts = Counter(verdict.verdict for verdict in report.verdicts)
    found |= {f"claims_{word.replace(' ', '_')}": verdicts[word] for word in VERDICTS if verdicts}
    numbers = {name: float(n) for name, n in found.items()}
    for one in report.beside.comparisons if report.beside else ():
        if one.difference is not None:
            numbers[metric_name("difference", one.label, one.column)] = one.difference
    return numbers


def metric_name(*parts: str) -> str:
    """A name as MLflow takes it; its charts are grouped by what stands before the last /."""
    words = (re.sub(r"[^\w\-. ]", " ", part) for part in parts)
    return "/".join(" ".join(word.split()) for word in words)
