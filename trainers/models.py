"""The work of `swap-embedding` and `select`, whose models other stages have trained."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.config.problems import UserError
from fope_lab.config.roles import MODEL, SELECTED, candidate_role
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import load_model, parameters, read_config, save_model
from fope_lab.model.decoder import Decoder, position_embeddings
from fope_lab.stages.internal import MEANS, Select, SwapEmbedding
from fope_lab.stages.labels import label
from fope_lab.stages.metric import ResultRecord
from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store.checkpoint import MANIFEST
from fope_lab.store.folder import StageFolder
from fope_lab.store.writer import RunWriter


def swap_embedding(
    spec: SwapEmbedding, writer: RunWriter, parents: Mapping[str, Path]
) -> dict[str, Any]:
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


def model_facts(model: Decoder) -> dict[str, Any]:
    """The parameters of body (with what position embeddings learn), head and input embedding, their
    total, and the numbers that follow from the embedding."""
    shape = position_embeddings(model)[0].shape
    counted = parameters(model.config)
    modules = (model.position_embeddings, model.query_scales)
    learned = sum(parameter.numel() for each in modules for parameter in each.parameters())
    counted = dataclasses.replace(counted, body=counted.body + learned)
    counts = {**dataclasses.asdict(counted), "total": counted.total}
    return {"parameters": counts, **model.embedding.facts(shape)}


class SelectionError(UserError):
    """No candidate can be chosen."""


def select(spec: Select, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Choose a value by the candidates' losses, and leave the model that it has under the stage's
    seed; returns result.json. Raises SelectionError if a loss is missing, or none is finite."""
    losses = {role: _loss(parents[role], spec.by) for roles in spec.roles() for role in roles}
    chosen = spec.chosen(losses)
    if chosen is None:
        raise SelectionError(f"{spec.by} is finite for no value of {spec.over} under every seed")
    source = parents[candidate_role(chosen, spec.seed)]
    writer.save_checkpoint(0, lambda directory: _link(source, directory))
    value, means = spec.values[chosen], spec.means(losses)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    recorded = {
        SELECTED: {"value": value, "index": chosen},
        MEANS: [
            {"value": label(value), spec.by: mean if math.isfinite(mean) else None}
            for value, mean in zip(spec.values, means, strict=True)
        ],
    }
    name = spec.over.rpartition(".")[2]
    return ResultRecord(
        numbers={f"selected_{name}": float(value)} if numeric else {}, recorded=recorded
    ).as_json()


def _loss(checkpoint: Path, name: str) -> float:
    folder = StageFolder.of_checkpoint(checkpoint)
    result = None if folder is None else folder.result()
    if result is not None:
        for measured in ResultRecord.parse(result).metrics:
            if measured.name == name:
                return measured.value
    raise SelectionError(f"the result of {checkpoint.parents[1]} has no {name}; re-run that stage")


def _link(source: Path, directory: Path) -> None:
    """Give a folder the files of a model's checkpoint, without the record of its training."""
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir() or str(name) in (MANIFEST, TRAINING_RECORD):
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, target)
