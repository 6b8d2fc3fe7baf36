"""The decoder, its sizes and its checkpoints.

Importing this package, `config` or `checkpoint` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fope_lab.model.checkpoint import load_model, read_config, save_model
from fope_lab.model.checkpoint_files import CheckpointConfig, CheckpointError
from fope_lab.model.config import SCALES, ModelConfig, flops_per_token, parameters

if TYPE_CHECKING:
    from fope_lab.model.cache import KeyValueCache
    from fope_lab.model.decoder import Decoder
    from fope_lab.model.generation import generate

__all__ = [
    "SCALES",
    "CheckpointConfig",
    "CheckpointError",
    "Decoder",
    "KeyValueCache",
    "ModelConfig",
    "flops_per_token",
    "generate",
    "load_model",
    "parameters",
    "read_config",
    "save_model",
]

NEED_TORCH = {"KeyValueCache": "cache", "Decoder": "decoder", "generate": "generation"}
"""The modules of names that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name in NEED_TORCH:
        return getattr(importlib.import_module(f"fope_lab.model.{NEED_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
