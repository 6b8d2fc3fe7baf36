"""Where an embedding stands in the committed results."""

from __future__ import annotations

from docs.generate.markdown import table
from docs.generate.results import all_results


def standings(name: str) -> str:
    """A table of the embedding's numbers at the longest length of every committed result."""
    rows = [row for result in all_results() for row in result.standings(name)]
    if not rows:
        return "No sweep of the [results page](../results.md) has this embedding."
    header = ("sweep", "stage", "metric", "model", "value", "rank")
    return (
        "At the longest length of each table of the [results page](../results.md). The rank is that"
        " of the mean alone: whether a difference is more than chance is what the claims judge.\n\n"
        + table(header, rows)
    )
