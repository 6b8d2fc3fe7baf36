"""Reading the weights of a Hugging Face folder of the Llama family under the decoder's names."""

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
"""The prefix of the names of tensors, except in files of the model without a head."""
DERIVED = ".rotary_emb.inv_freq"
"""The suffix of frequencies, which early versions of transformers stored. The configuration
determines them."""


def read_huggingface_weights(
    directory: Path, description: Mapping[str, Any], config: CheckpointConfig
) -> dict[str, Tensor]:
    """Read the tensors under the names of `Decoder.untied_state`, without a position embedding's.

    They have the dtype of the files, except that gains to which 1 is added are float32. After
    `load_model` has widened them, logits equal those of transformers with dtype=float32. Raises
    CheckpointError for weights that are quantised, duplicate or contradict the configuration.
    """
    import torch

    shifted = family_of(description, str(directory)).shifted_gains
    weights: dict[str, Tensor] = {}
    for path in weight_files(directory):
        for name, tensor in read_weights(path).items():
            if name.endswith(DERIVED):
                continue
            if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise CheckpointError(
                    f"{path}: {name} is {tensor.dtype}: quantised weights are not supported"
                )
            own = name.removeprefix(PREFIX)
            if own in weights:
                raise CheckpointError(f"{path}: {name} occurs twice, with and without {PREFIX}")
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
