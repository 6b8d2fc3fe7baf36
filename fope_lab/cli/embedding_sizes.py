"""The sizes that `fope-lab embeddings` computes frequencies and learned parameters at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.describe import EXAMPLES
from fope_lab.embeddings.errors import EmbeddingError

NUM_HEADS = 8
MAX_FACTOR = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A shape, values for the options that embeddings leave open, and a length beyond training.

    `longer` is in tokens, None if only the training length is of interest.
    """

    shape: Shape
    options: Mapping[str, Any]
    longer: int | None


DEFAULT = Sizes(
    shape=Shape(head_dim=64, num_heads=NUM_HEADS, num_kv_heads=NUM_HEADS, train_length=512),
    options=EXAMPLES,
    longer=None,
)
"""The sizes at which learned parameters are counted if none are given."""


def requested_sizes(
    *,
    head_dim: int | None,
    train_length: int | None,
    num_heads: int | None,
    num_kv_heads: int | None,
    factor: float | None,
    base: float | None,
) -> Sizes | None:
    """The sizes that a command's options give, or None if they give none.

    Raises EmbeddingError naming the option that is missing or out of range.
    """
    counts = {
        "head_dim": head_dim,
        "train_length": train_length,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
    }
    if all(value is None for value in (*counts.values(), factor, base)):
        return None
    for name, count in counts.items():
        if count is not None and count < 1:
            raise wrong_option(_flag(name), f"found {count} (allowed: at least 1)")
    if head_dim is None or train_length is None:
        name = "head_dim" if head_dim is None else "train_length"
        raise wrong_option(_flag(name), "missing: sizes need --head-dim and --train-length")
    if factor is not None and not 1 <= factor <= MAX_FACTOR:
        raise wrong_option("--factor", f"found {factor:g} (allowed: 1 to {MAX_FACTOR:,})")
    heads = num_heads or NUM_HEADS
    given = {"factor": factor, "base": base}
    return Sizes(
        shape=Shape(
            head_dim=head_dim,
            num_heads=heads,
            num_kv_heads=num_kv_heads or heads,
            train_length=train_length,
        ),
        options={name: value for name, value in given.items() if value is not None},
        longer=round(factor * train_length) if factor is not None else None,
    )


def wrong_option(flag: str, problem: str) -> EmbeddingError:
    """The error for an option of the command that is wrong."""
    return EmbeddingError(Problem((flag,), problem))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
