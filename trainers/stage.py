"""What pretrain, extend and finetune share: from a stage's configuration to a trained checkpoint.

They differ in the model that they start from, which each of them builds itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.mixture import TrainingData
from fope_lab.data.tokenizer import Tokenizer
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import load_model, parameters, save_model
from fope_lab.model.decoder import Decoder
from fope_lab.store import Attempt
from fope_lab.sweep.stages import TrainingConfig
from trainers.loop import choose_device, train


def train_stage(
    stage: TrainingConfig,
    attempt: Attempt,
    parents: Mapping[str, Path],
    start: Callable[[], Decoder],
    *,
    tokenizer_name: str,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Train to the end, from `start()` or from the checkpoint that the attempt goes on from.

    `parents` holds the prepared data under "data.0", "data.1", …; `tokenizer` is the one named.
    Returns what result.json says.
    """
    device = choose_device(stage.resources)
    resumed = attempt.resumed_from
    model = start() if resumed is None else load_model(resumed.path)
    data = TrainingData(
        stage.data,
        parents,
        tokenizer,
        batch_size=stage.train.batch_tokens // stage.data.length,
        seed=stage.seed,
    )

    def write_model(directory: Path) -> None:
        save_model(
            directory,
            model,
            embedding=model.embedding,
            train_length=model.train_length,
            context_length=stage.data.length,
            tokenizer=tokenizer_name,
        )

    summary = train(
        model.to(device),
        data.batch,
        stage.train,
        attempt,
        write_model,
        seed=stage.seed,
        device=device,
    )
    embedding = model.position_embeddings[0]
    assert isinstance(embedding, PositionEmbedding)
    facts = embedding.definition.facts(embedding.shape)
    return {**summary, "parameters": _count(model), **facts}


def _count(model: Decoder) -> dict[str, int]:
    """Parameters of body, head and input embedding, and in total; what a position embedding learns
    counts as body."""
    counted = parameters(model.config)
    learned = sum(parameter.numel() for parameter in model.position_embeddings.parameters())
    counted = dataclasses.replace(counted, body=counted.body + learned)
    return {**dataclasses.asdict(counted), "total": counted.total}
