"""Extend: go on training a parent's model on longer text, perhaps with another embedding.

The original length of the embedding stays the length that the parent was first trained at; what a
new embedding of the same mechanism can keep of the old one (FoPE's coefficients where the same
pairs survive, learned parameters) it keeps, and draws the rest from the stage's seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import load_model, read_config
from fope_lab.model.decoder import Decoder
from fope_lab.stages import Extend
from fope_lab.store import Attempt
from trainers.stage import train_stage
from trainers.worker_group import WorkerGroup


def run(
    stage: Extend, attempt: Attempt, parents: Mapping[str, Path], workers: WorkerGroup | None = None
) -> dict[str, Any]:
    """The parent's checkpoint is the role "from"; an embedding of None goes on with its own.

    Raises loop.NonFiniteError, memory.TrainingMemoryError, DataError, CheckpointError,
    EmbeddingError.
    """
    parent = parents["from"]
    tokenizer = load_tokenizer(read_config(parent).tokenizer)

    def start() -> Decoder:
        return load_model(parent, embedding=stage.embedding, seed=stage.seed)

    return train_stage(
        stage,
        attempt,
        parents,
        start,
        tokenizer=tokenizer,
        workers=workers or WorkerGroup(),
    )
