"""The heat map of a passkey's accuracy by its depth and the context's length.

A result has it among its details, as `by_depth`: for each length, the accuracy in each tenth of the
depths that holds a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.evaluation.passkey import METRIC

BY_DEPTH = "by_depth"


def depth_heatmaps(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The heat map of a result's details, in a list; empty if they have none that can be read."""
    try:
        lengths = {
            int(length): {float(entry["depth"]): float(entry["accuracy"]) for entry in entries}
            for length, entries in details[BY_DEPTH].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return []
    xs = sorted(lengths)
    depths = sorted({depth for by_depth in lengths.values() for depth in by_depth})
    if not depths:
        return []
    return [
        {
            "title": "Passkey accuracy by depth and context length",
            "metric": METRIC,
            "x_label": "context length, tokens",
            "y_label": "depth of the key, %",
            "x": xs,
            "y": [round(100 * depth, 1) for depth in depths],
            "values": [[lengths[x].get(depth) for x in xs] for depth in depths],
            "low": 0.0,
            "high": 1.0,
        }
    ]
