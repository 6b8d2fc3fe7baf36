"""What a stage that leaves a model records of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import parameters
from fope_lab.model.decoder import Decoder


def model_facts(model: Decoder) -> dict[str, Any]:
    """The model's numbers of parameters, and the numbers that follow from its embedding."""
    embedding = model.position_embeddings[0]
    assert isinstance(embedding, PositionEmbedding)
    facts = embedding.definition.facts(embedding.shape)
    return {"parameters": _parameter_counts(model), **facts}


def _parameter_counts(model: Decoder) -> dict[str, int]:
    """The parameters of body, head and input embedding, and their total.

    What a position embedding learns counts as body.
    """
    counted = parameters(model.config)
    learned = sum(parameter.numel() for parameter in model.position_embeddings.parameters())
    counted = dataclasses.replace(counted, body=counted.body + learned)
    return {**dataclasses.asdict(counted), "total": counted.total}
