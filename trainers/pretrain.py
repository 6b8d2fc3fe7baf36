"""Pretraining starts from a model with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fope_lab.data.tokenizers.tokenizer import load_for_stage
from fope_lab.model.decoder import Decoder
from fope_lab.stages import Pretrain
from trainers.start import Start


def start(spec: Pretrain, parents: Mapping[str, Path]) -> Start:
    """A new model. Its weights and its embedding's coefficients follow from the stage's seed.

    Raises EmbeddingError, and DataError if the tokenizer can't be loaded.
    """
    build_model = partial(
        Decoder, spec.model, spec.embedding, train_length=spec.data.length, seed=spec.seed
    )
    return Start(load_for_stage(spec.tokenizer, parents), build_model)
