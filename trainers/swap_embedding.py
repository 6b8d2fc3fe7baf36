"""Another position embedding for a parent's model, whose other weights stay as they are.

The embedding's original length stays the length that the parent was first trained at. What the new
embedding has in common with the old one, and what it draws, is as in trainers/extend.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.roles import MODEL
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import load_model, read_config, save_model
from fope_lab.stages import SwapEmbedding
from fope_lab.stages.result import ResultRecord
from fope_lab.store import RunWriter
from trainers.model_facts import model_facts


def run(spec: SwapEmbedding, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Save the parent's model with the stage's embedding, and its tokenizer; returns result.json.

    It runs on the CPU. Raises CheckpointError and EmbeddingError.
    """
    parent = parents[MODEL]
    config = read_config(parent)
    model = load_model(parent, embedding=spec.embedding, seed=spec.seed)
    tokenizer = load_tokenizer(config.tokenizer)

    def write(directory: Path) -> None:
        save_model(
            directory,
            model,
            context_length=config.context_length,
            tokenizer=tokenizer.save(directory),
        )

    writer.save_checkpoint(0, write)
    return ResultRecord(recorded=model_facts(model)).as_json()
