"""What pretrain, extend and finetune share: from a stage's configuration to a trained checkpoint.

They differ in the model that they start from, which each of them builds itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fope_lab.data.mixture import TrainingData
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import load_model, parameters, save_model
from fope_lab.model.decoder import Decoder
from fope_lab.stages import TrainingConfig
from fope_lab.store import Attempt
from trainers.loop import choose_device, train
from trainers.oom_advice import memory_advice
from trainers.validation import HeldOut
from trainers.worker_group import WorkerGroup


def train_stage(
    stage: TrainingConfig,
    attempt: Attempt,
    parents: Mapping[str, Path],
    start: Callable[[], Decoder],
    *,
    tokenizer: Tokenizer,
    workers: WorkerGroup,
) -> dict[str, Any]:
    """Train to the end, from `start()` or from the checkpoint that the attempt goes on from.

    `parents` holds the prepared data under "data.0", "data.1", …, and under "validation.0", … where
    the stage validates; a copy of the tokenizer goes into each checkpoint. Returns what result.json
    says. Raises memory.TrainingMemoryError, which says what to lower.
    """
    with memory_advice(stage):
        return _train_stage(stage, attempt, parents, start, tokenizer, workers)


def _train_stage(
    stage: TrainingConfig,
    attempt: Attempt,
    parents: Mapping[str, Path],
    start: Callable[[], Decoder],
    tokenizer: Tokenizer,
    workers: WorkerGroup,
) -> dict[str, Any]:
    device = choose_device(stage.resources)
    resumed = attempt.resumed_from
    model = start() if resumed is None else load_model(resumed.path)
    model.gradient_checkpointing = stage.train.gradient_checkpointing
    data = TrainingData(
        stage.data,
        parents,
        tokenizer,
        batch_size=stage.train.batch_tokens // stage.data.length,
        seed=stage.seed,
        rank=workers.rank,
        world_size=workers.size,
    )

    def write_model(directory: Path, weights: Mapping[str, Tensor]) -> None:
        save_model(
            directory,
            model,
            embedding=model.embedding,
            train_length=model.train_length,
            context_length=stage.data.length,
            tokenizer=tokenizer.save(directory),
            state=weights,
        )

    held_out = _held_out(stage, parents, tokenizer, workers)
    summary = train(
        model.to(device),
        data.batch,
        stage.train,
        attempt,
        write_model,
        seed=stage.seed,
        device=device,
        held_out=None if held_out is None else held_out.batches,
        workers=workers,
    )
    embedding = model.position_embeddings[0]
    assert isinstance(embedding, PositionEmbedding)
    facts = embedding.definition.facts(embedding.shape)
    examples = {"examples": data.examples()} if data.examples() else {}
    validated = {} if held_out is None else {"validation_rows": held_out.total}
    return {**summary, **validated, "parameters": _count(model), **facts, **examples}


def _held_out(
    stage: TrainingConfig, parents: Mapping[str, Path], tokenizer: Tokenizer, workers: WorkerGroup
) -> HeldOut | None:
    """The held-out data of a stage that validates, as much at a time as in training."""
    train, length = stage.train, stage.train.validation_length or stage.data.length
    if train.validation_tokens is None:
        return None
    share = train.batch_tokens // workers.size
    rows = max(1, min(train.micro_batch_tokens or share, share) // length)
    return HeldOut(
        stage.data,
        parents,
        tokenizer,
        tokens=train.validation_tokens,
        length=length,
        rows=rows,
        workers=workers,
    )


def _count(model: Decoder) -> dict[str, int]:
    """Parameters of body, head and input embedding, and in total; what a position embedding learns
    counts as body."""
    counted = parameters(model.config)
    learned = sum(parameter.numel() for parameter in model.position_embeddings.parameters())
    counted = dataclasses.replace(counted, body=counted.body + learned)
    return {**dataclasses.asdict(counted), "total": counted.total}
