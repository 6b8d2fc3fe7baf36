"""Ladders of frequencies chosen by hand."""

from __future__ import annotations

from fope_lab.embeddings.frequencies import Ladder


def ladder_of(*frequencies: float, train_length: int = 64) -> Ladder:
    """The frequencies as those of the first pairs of a head."""
    return Ladder(
        frequencies=frequencies,
        places=tuple(map(float, range(len(frequencies)))),
        head_dim=2 * len(frequencies),
        base=2.0,
        train_length=train_length,
        length=train_length,
    )
