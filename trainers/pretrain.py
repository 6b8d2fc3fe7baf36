"""Pretrain: a model from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.tokenizers.tokenizer import load_for_stage
from fope_lab.model import ModelConfig
from fope_lab.model.decoder import Decoder
from fope_lab.stages import Pretrain
from fope_lab.store import Attempt
from trainers.stage import train_stage
from trainers.worker_group import WorkerGroup


def run(
    stage: Pretrain,
    attempt: Attempt,
    parents: Mapping[str, Path],
    workers: WorkerGroup | None = None,
) -> dict[str, Any]:
    """Weights, embedding coefficients and the order of the data all follow from the stage's seed.

    Raises loop.NonFiniteError, memory.TrainingMemoryError, DataError, EmbeddingError.
    """
    tokenizer = load_for_stage(stage.tokenizer, parents)
    config: ModelConfig = stage.model

    def start() -> Decoder:
        return Decoder(config, stage.embedding, train_length=stage.data.length, seed=stage.seed)

    return train_stage(
        stage,
        attempt,
        parents,
        start,
        tokenizer=tokenizer,
        workers=workers or WorkerGroup(),
    )
