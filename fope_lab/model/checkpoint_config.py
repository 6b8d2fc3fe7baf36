"""All that a checkpoint says beside its weights. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fope_lab.config.errors import UserError
from fope_lab.model.config import ModelConfig


class CheckpointError(UserError, ValueError):
    """A checkpoint that is not there, or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """All that a checkpoint says beside its weights.

    `embedding` is canonical; `train_length` is the original length in tokens, `context_length`
    the length that the model was last trained at.
    """

    model: ModelConfig
    embedding: dict[str, Any]
    train_length: int
    context_length: int
    tokenizer: str
