"""The roles of a stage's parents: what a stage reads from each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL = "from"
"""The parent whose model a stage trains further, evaluates or looks at."""
TOKENIZER = "tokenizer"
"""The parent that made the stage's tokenizer."""
SELECTED = "selected"
"""Where the result of a selection has the chosen value and its index."""


def text_role(index: int) -> str:
    """The parent that prepared a text: of source `index` of a mixture, or of an evaluation's
    corpora."""
    return f"data.{index}"


def candidate_role(index: int, seed: int) -> str:
    """The training under one seed with value `index` of those that a selection chooses from."""
    return f"candidate.{index}.{seed}"


def is_candidate(role: str) -> bool:
    """Whether a parent is one of those that a selection chooses from."""
    return role.startswith("candidate.")


def chosen_role(recorded: Mapping[str, Any], seed: int) -> str | None:
    """The candidate that a selection under `seed` chose, by what its result recorded, if any."""
    index = recorded.get(SELECTED, {}).get("index")
    return None if index is None else candidate_role(int(index), seed)


def validation_role(index: int) -> str:
    """The parent that prepared the held-out part of the corpus of source `index`."""
    return f"validation.{index}"
