"""What a checkpoint states, and its weights in safetensors: one file, or shards with an index."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.config.problems import UserError
from fope_lab.embeddings.base import Embedding
from fope_lab.model.adapter import Adapter
from fope_lab.model.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor


class CheckpointError(UserError, ValueError):
    """A checkpoint that does not exist or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Everything that a checkpoint states besides its weights.

    `train_length` is the original training length in tokens, `context_length` the length in tokens
    at which the model was last trained. `adapter` has not been merged into the weights.
    """

    model: ModelConfig
    embedding: Embedding
    train_length: int
    context_length: int
    tokenizer: str
    adapter: Adapter | None = None


@dataclass(frozen=True)
class ConfigSource:
    """The origin of a config.json: its name in errors, its folder, and the tokenizer beside it."""

    config: str
    folder: Path
    tokenizer: str


WEIGHTS = "model.safetensors"
SHARDS = "shards"
"""The folder of a checkpoint to resume from whose tensors several workers have written."""
INDEX = "model.safetensors.index.json"


def weight_files(directory: Path) -> list[Path]:
    """The files of a model's weights. Torch-free.

    Raises CheckpointError if there are none, or if the index cannot be read.
    """
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if not (directory / INDEX).is_file():
        others = sorted(path.name for path in directory.glob("pytorch_model*.bin"))
        instead = f", only {others[0]}: convert it to safetensors" if others else ""
        raise CheckpointError(f"{directory / WEIGHTS} is missing{instead}")
    try:
        index = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        return [directory / name for name in sorted(set(index["weight_map"].values()))]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{directory / INDEX} is damaged: {error}") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of one file, on the CPU. Raises CheckpointError if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        # Copy, because the tensors are mapped from a file that the store may remove.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
