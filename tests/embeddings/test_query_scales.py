"""Factors of queries against their formulas, by the tokens that each query is counted to see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fope_lab.embeddings import parse_embedding
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.module import QueryScaling
from fope_lab.model.seen import Documents, Seen

HEADS, LENGTH, TRAINED = 3, 60, 16
NUMBERS = torch.tensor([[0] * 20 + [1] * 7 + [0] * 3 + [2] * 30, [5] * 60])
"""Documents of two sequences; tokens of one need not be consecutive."""
FORMULAS: dict[str, tuple[dict[str, Any], Callable[[int, int], float]]] = {
    "ssmax": ({"type": "ssmax"}, lambda n, head: (head + 1) / 4 * math.log(n)),
    "logn": ({"type": "logn"}, lambda n, head: max(1.0, math.log(n) / math.log(TRAINED))),
    "logn of another length": (
        {"type": "logn", "original_length": 5},
        lambda n, head: max(1.0, math.log(n) / math.log(5)),
    ),
    "temperature": (
        {"type": "temperature", "alpha": 0.3, "floor": 7},
        lambda n, head: 1 + 0.3 * math.log(1 + n // 7),
    ),
}


@pytest.mark.parametrize("queries", [LENGTH, 5, 1])
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_each_query_has_the_factor_of_what_it_sees(
    name: str, packed: bool, window: int | None, queries: int
) -> None:
    options, formula = FORMULAS[name]
    scale = parse_embedding({"type": "nope", "query_scale": options}).query_scale
    assert scale is not None
    shape = Shape(head_dim=4, num_heads=HEADS, num_kv_heads=HEADS, train_length=TRAINED)
    scaling = QueryScaling(scale, shape)
    with torch.no_grad():
        for parameter in scaling.parameters():  # s of each head
            parameter.copy_(torch.tensor([0.25, 0.5, 0.75]))
    seen = Seen.of(queries, LENGTH, Documents(NUMBERS) if packed else None, window)
    q = torch.randn(2, HEADS, queries, 4)
    found = scaling(q, seen.counts(q.device)) / q
    for row in range(2):
        for query in range(queries):
            last = LENGTH - queries + query
            own = NUMBERS[row] == NUMBERS[row, last] if packed else torch.ones(LENGTH).bool()
            n = int(own[max(0, last - (window or LENGTH) + 1) : last + 1].sum())
            for head in range(HEADS):
                expected = torch.full((4,), formula(n, head))
                torch.testing.assert_close(found[row, head, query], expected)
