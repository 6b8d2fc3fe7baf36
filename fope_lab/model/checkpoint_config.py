"""The configuration of a checkpoint. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from fope_lab.config.problems import UserError
from fope_lab.embeddings.base import Embedding
from fope_lab.model.config import ModelConfig


class CheckpointError(UserError, ValueError):
    """A checkpoint that does not exist or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Everything that a checkpoint states besides its weights.

    `train_length` is the original training length in tokens, `context_length` the length in tokens
    at which the model was last trained.
    """

    model: ModelConfig
    embedding: Embedding
    train_length: int
    context_length: int
    tokenizer: str
