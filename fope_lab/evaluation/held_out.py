"""The held-out text of a stage's corpus, as tokens of its model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.shards import ShardedArray
from fope_lab.data.tokenizers.tokenizer import Tokenizer


def held_out_text(
    parents: Mapping[str, Path],
    tokenizer: Tokenizer,
    at_least: int,
    what: str,
    role: str = "data.0",
) -> ShardedArray:
    """The tokens (n,) of the stage's corpus, or of another one that it reads, by its role; slices
    of it are read from the disk.

    Raises DataError if there are fewer than `at_least`, which `what` needs.
    """
    expected = {"tokenizer": tokenizer.identity(), "split": "validation"}
    tokens = PackedCorpus(parents[role], expected).tokens
    if len(tokens) < at_least:
        raise DataError(
            f"{what} needs {at_least:,} tokens, and the held-out text has {len(tokens):,}"
        )
    return tokens
