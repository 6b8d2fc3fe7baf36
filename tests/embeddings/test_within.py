"""An embedding for some of a model's layers."""

from __future__ import annotations

from typing import Any

import pytest

from fope_lab.embeddings import EmbeddingError, Shape, check_definition, parse_embedding
from fope_lab.embeddings.within import Within

SHAPE = Shape(head_dim=16, num_heads=2, num_kv_heads=2, train_length=64)
YARN: dict[str, Any] = {"type": "yarn", "factor": 4, "base": 500.0}
PATTERN: dict[str, Any] = {
    "type": "layered",
    "pattern": [{"embedding": "rope", "window": 8}, "rope", "nope"],
}


def merged(where: str, own: Any = PATTERN, layers: int = 7) -> list[tuple[str, int | None]]:
    wanted = parse_embedding({**YARN, "where": where})
    assert isinstance(wanted, Within)
    found = wanted.merged(parse_embedding(own), layers)
    check_definition(found, SHAPE)
    yarn = parse_embedding(YARN)
    return [
        ("yarn" if plan.embedding == yarn else plan.embedding.name, plan.window)
        for plan in found.layers(layers)
    ]


def test_the_other_layers_keep_theirs_and_all_their_windows() -> None:
    window, full, still = ("rotary", 8), ("rotary", None), ("nope", None)
    assert merged("full") == [window, ("yarn", None), ("yarn", None)] * 2 + [window]
    assert merged("rotating") == [("yarn", 8), ("yarn", None), still] * 2 + [("yarn", 8)]
    assert merged("all") == [("yarn", 8), ("yarn", None), ("yarn", None)] * 2 + [("yarn", 8)]
    assert full not in merged("full")


def test_layers_that_are_all_alike_are_no_pattern() -> None:
    assert merged("all", "rope") == [("yarn", None)] * 7
    found = parse_embedding({**YARN, "where": "full"}).merged(parse_embedding("rope"), 3)  # type: ignore[attr-defined]
    assert found == parse_embedding(YARN)


def test_what_is_written_is_read() -> None:
    wanted = parse_embedding({**YARN, "where": "full"})
    assert parse_embedding(wanted.canonical()) == wanted


def test_there_must_be_such_a_layer() -> None:
    with pytest.raises(EmbeddingError, match="found rotating, but the model has no such layer"):
        merged("rotating", "nope")
    with pytest.raises(EmbeddingError, match=r"where: .*'fulll'.*did you mean 'full'"):
        merged("fulll")
    with pytest.raises(EmbeddingError, match="there is no model yet"):
        check_definition(parse_embedding({**YARN, "where": "full"}), SHAPE)
