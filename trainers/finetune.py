"""Finetune: supervised pairs of prompt and answer, with the loss on the answer only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.data.tokenizer import load_tokenizer
from fope_lab.model import load_model, read_config
from fope_lab.model.decoder import Decoder
from fope_lab.store import Attempt
from fope_lab.sweep.stages import Finetune
from trainers.stage import train_stage


def run(stage: Finetune, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """The parent's checkpoint is the role "from"; the data's rows leave prompts without a loss.

    Raises loop.NonFiniteError, DataError, CheckpointError.
    """
    parent = parents["from"]
    tokenizer_name = read_config(parent).tokenizer

    def start() -> Decoder:
        return load_model(parent)

    tokenizer = load_tokenizer(tokenizer_name)
    return train_stage(
        stage, attempt, parents, start, tokenizer_name=tokenizer_name, tokenizer=tokenizer
    )
