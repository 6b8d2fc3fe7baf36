"""The weights of a Hugging Face folder of the Llama family, under the decoder's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.model.checkpoint_config import CheckpointConfig, CheckpointError
from fope_lab.model.huggingface_config import family_of
from fope_lab.model.weights import read_weights, weight_files

if TYPE_CHECKING:
    from torch import Tensor

HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
DERIVED = ".rotary_emb.inv_freq"
"""Frequencies, which early versions of transformers stored and which follow from the config."""


def read_huggingface_weights(
    directory: Path, description: Mapping[str, Any], config: CheckpointConfig
) -> dict[str, Tensor]:
    """Tensors as `Decoder.untied_state` names them, without those of a position embedding.

    All are float32, whatever the files hold (float16 and bfloat16 lose nothing by it): the logits
    are Hugging Face's for dtype=float32, and trainers keep float32 weights. Raises CheckpointError.
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
            wide = tensor.to(torch.float32)
            if shifted and name.endswith("norm.weight"):
                wide = wide + 1.0
            weights[name.removeprefix("model.")] = wide
    if config.model.tie_embeddings and HEAD in weights:
        head = weights.pop(HEAD)
        if EMBEDDING in weights and not torch.equal(head, weights[EMBEDDING]):
            raise CheckpointError(
                f"{directory}: tie_word_embeddings is true, but {HEAD} is not the input embedding"
            )
    return weights
