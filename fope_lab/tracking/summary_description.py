"""The description of the run `summary`: the sweep, how its claims came out, where to look.

The text of the sweep file is free, so a digest beside the description says whether it is still the
one that was sent, or a user's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fope_lab.tracking.description import TAG, escaped
from fope_lab.tracking.links import VIEW

DIGEST = "described"
"""The tag with the digest of the description that was sent."""
REPORT = "report.html"
CLAIMS = "claims_"
"""The beginning of the names of the report's numbers that count claims by verdict."""
BREAK = "  \n"
"""A new line without a gap, in Markdown: MLflow folds up what is higher than four or five lines."""
PLURALS = {"holds": "hold", "fails": "fail"}
MOST_VIEWS, MOST_LETTERS = 25, 2_000
"""Limits that keep the description within MLflow's limit for the value of a tag."""


def description_tags(text: str, present: Mapping[str, str]) -> dict[str, str]:
    """The tags of a run with the description `text`, none if a user wrote the one that is there.

    `present` has the tags of the run.
    """
    there = present.get(TAG)
    if there is not None and _digest(there) != present.get(DIGEST):
        return {}
    return {TAG: text, DIGEST: _digest(text)}


def summary_description(
    sweep: str, numbers: Mapping[str, float], pages: Mapping[str, str], run_page: str
) -> str:
    """The description as Markdown.

    `sweep` is the description of the sweep, `numbers` has the numbers of its report, and `pages`
    the pages of its prepared views by their names. `run_page` is the page of the run, from "#".
    """
    shown = list(pages.items())[:MOST_VIEWS]
    views = ", ".join(f"[{escaped(name)}]({page}&{VIEW})" for name, page in shown)
    lines = [
        _verdicts(numbers),
        f"Report: [{REPORT}]({run_page}/artifacts/{REPORT}?{VIEW})",
        f"Prepared views: {views}" if views else "",
    ]
    paragraphs = [sweep.strip()[:MOST_LETTERS], BREAK.join(line for line in lines if line)]
    return "\n\n".join(text for text in paragraphs if text)


def _verdicts(numbers: Mapping[str, float]) -> str:
    """How many claims have each verdict: "Claims: 2 hold, 1 undecided."; "" if there are none."""
    counts = {
        name.removeprefix(CLAIMS).replace("_", " "): int(number)
        for name, number in numbers.items()
        if name.startswith(CLAIMS) and number > 0
    }
    words = (f"{n} {word if n == 1 else PLURALS.get(word, word)}" for word, n in counts.items())
    return f"Claims: {', '.join(words)}." if counts else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
