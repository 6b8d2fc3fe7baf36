"""The decoder, its sizes and its checkpoints.

Importing this package, `config` or `checkpoint` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fope_lab.model.checkpoint import (
    CheckpointConfig,
    CheckpointError,
    find_checkpoint,
    load_model,
    read_config,
    save_model,
)
from fope_lab.model.config import SCALES, ModelConfig, Parameters, flops_per_token, parameters

if TYPE_CHECKING:
    from fope_lab.model.decoder import Decoder

__all__ = [
    "SCALES",
    "CheckpointConfig",
    "CheckpointError",
    "Decoder",
    "ModelConfig",
    "Parameters",
    "find_checkpoint",
    "flops_per_token",
    "load_model",
    "parameters",
    "read_config",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name == "Decoder":
        return importlib.import_module("fope_lab.model.decoder").Decoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
