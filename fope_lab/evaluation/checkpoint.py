"""The model that an evaluation reads, and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from fope_lab.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from fope_lab.model import load_model, read_config

if TYPE_CHECKING:
    from fope_lab.stages import Resources


def load_parent(parents: Mapping[str, Path], resources: Resources) -> tuple[nn.Module, Tokenizer]:
    """The parent's model in eval mode, on a GPU if one is reserved, and its tokenizer."""
    parent = parents["from"]
    model = load_model(parent).to("cuda" if resources.gpus else "cpu")
    return model, load_tokenizer(read_config(parent).tokenizer)


def device_of(model: nn.Module) -> torch.device:
    """Where a model's first parameter or buffer lies; the CPU if it has none."""
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")
