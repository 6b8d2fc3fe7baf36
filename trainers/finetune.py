"""Finetune: pairs of prompt and answer, or chats, with the loss on what the assistant says only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import load_for_stage, load_tokenizer
from fope_lab.model import load_model, read_config
from fope_lab.model.decoder import Decoder
from fope_lab.stages import Finetune
from fope_lab.store import Attempt
from trainers.stage import train_stage
from trainers.worker_group import WorkerGroup


def run(
    stage: Finetune,
    attempt: Attempt,
    parents: Mapping[str, Path],
    workers: WorkerGroup | None = None,
) -> dict[str, Any]:
    """The parent's checkpoint is the role "from"; the data's rows leave prompts without a loss.

    Raises loop.NonFiniteError, memory.TrainingMemoryError, DataError, CheckpointError.
    """
    parent = parents["from"]
    config = read_config(parent)
    tokenizer = own = load_tokenizer(config.tokenizer)
    if stage.tokenizer is not None:
        tokenizer = load_for_stage(stage.tokenizer, parents)
        if not own.vocabulary().items() <= tokenizer.vocabulary().items():
            raise DataError(
                f"the tokenizer {stage.tokenizer} has other ids than {config.tokenizer}, which the "
                f"model of {parent} was trained with"
            )
        if tokenizer.tokens > config.model.vocab_size:
            raise DataError(
                f"the tokenizer has {tokenizer.tokens} tokens, and the model of {parent} has "
                f"{config.model.vocab_size}"
            )

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
