"""The sizes that `fope-lab embeddings` computes frequencies and learned parameters at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import EmbeddingError, Shape
from fope_lab.embeddings.describe import EXAMPLES

NUM_HEADS = 8


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


def requested_sizes(given: Mapping[str, Any]) -> Sizes | None:
    """The sizes that a command's options give, or None if they give none.

    `given` has the value of every option, by its name in Python. Raises EmbeddingError naming the
    option that is missing.
    """
    if all(value is None for value in given.values()):
        return None
    for flag in ("--head-dim", "--train-length"):
        if given[flag[2:].replace("-", "_")] is None:
            raise wrong_option(flag, "missing: sizes need --head-dim and --train-length")
    heads, factor, length = given["num_heads"] or NUM_HEADS, given["factor"], given["train_length"]
    return Sizes(
        shape=Shape(
            head_dim=given["head_dim"],
            num_heads=heads,
            num_kv_heads=given["num_kv_heads"] or heads,
            train_length=length,
        ),
        options={name: given[name] for name in ("factor", "base") if given[name] is not None},
        longer=None if factor is None else round(factor * length),
    )


def wrong_option(flag: str, problem: str) -> EmbeddingError:
    """The error for an option of the command that is wrong."""
    return EmbeddingError(Problem((flag,), problem))
