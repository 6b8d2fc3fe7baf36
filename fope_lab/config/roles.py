"""The roles of a stage's parents: what a stage reads from each of them."""

from __future__ import annotations

MODEL = "from"
"""The parent whose model a stage trains further, evaluates or looks at."""
TOKENIZER = "tokenizer"
"""The parent that made the stage's tokenizer."""


def text_role(index: int) -> str:
    """The parent that prepared a text: of source `index` of a mixture, or of an evaluation's
    corpora."""
    return f"data.{index}"


def candidate_role(index: int, seed: int) -> str:
    """The training under one seed with value `index` of those that a selection chooses from."""
    return f"candidate.{index}.{seed}"


def validation_role(index: int) -> str:
    """The parent that prepared the held-out part of the corpus of source `index`."""
    return f"validation.{index}"
