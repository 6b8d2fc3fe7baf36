"""Embeddings with the options that they can't do without, for models of 16 dimensions a head."""

from __future__ import annotations

from typing import Any

from fope_lab.embeddings import EMBEDDINGS

PAIRS = 8
NEEDS: dict[str, Any] = {
    "factor": 4.0,
    "short": [1.0] * PAIRS,
    "long": [2.0] * PAIRS,
    "pairs": PAIRS // 2,
    "window": 9,
    "group": 4,
    "pattern": [{"embedding": "rope", "window": 9}, "nope"],
}


def with_needs(name: str, **chosen: Any) -> dict[str, Any]:
    """A preset or mechanism with what it needs, and those of the chosen options that it has."""
    entry = EMBEDDINGS.entry(name)
    needed = {option: value for option, value in NEEDS.items() if option in entry.required}
    return {"type": name, **needed, **{n: v for n, v in chosen.items() if n in entry.options}}
