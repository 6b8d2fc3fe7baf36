"""The weights of a Hugging Face folder of the Llama family, under the decoder's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.model.checkpoint_config import CheckpointConfig, CheckpointError
from fope_lab.model.huggingface.config import family_of
from fope_lab.model.weights import read_weights, weight_files

if TYPE_CHECKING:
    from torch import Tensor

HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
PREFIX = "model."
"""What Hugging Face's names of the tensors begin with, except in files of the bare model."""
DERIVED = ".rotary_emb.inv_freq"
"""Frequencies, which early versions of transformers stored and which follow from the config."""


def read_huggingface_weights(
    directory: Path, description: Mapping[str, Any], config: CheckpointConfig
) -> dict[str, Tensor]:
    """Tensors as `Decoder.untied_state` names them, without those of a position embedding.

    They have the dtype of the files, but gains to which 1 is added float32: the logits of the model
    that `load_model` widens are Hugging Face's for dtype=float32. Raises CheckpointError.
    """
    import torch

    shifted = family_of(description, str(directory)).shifted_gains
    weights: dict[str, Tensor] = {}
    for path in weight_files(directory):
        for name, tensor in read_weights(path).items():
            if name.endswith(DERIVED):
                continue
            if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise CheckpointError(f"{path}: {name} is {tensor.dtype}: quantised weights")
            own = name.removeprefix(PREFIX)
            if own in weights:
                raise CheckpointError(f"{path}: {name} is there twice, with {PREFIX} or without it")
            gain = shifted and name.endswith("norm.weight")
            weights[own] = tensor.to(torch.float32) + 1.0 if gain else tensor
    if config.model.tie_embeddings and HEAD in weights:
        head = weights.pop(HEAD)
        embedding = weights.setdefault(EMBEDDING, head)  # either of the two names may be stored
        if not torch.equal(head.to(torch.float32), embedding.to(torch.float32)):
            raise CheckpointError(
                f"{directory}: tie_word_embeddings is true, but {HEAD} is not the input embedding"
            )
    return weights
