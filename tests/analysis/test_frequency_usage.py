"""Norms by pair against complex numbers, and pairs that are known to be used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from analysed import ignore, random_model

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.frequency_usage import FrequencyUsage, mean_norms
from fope_lab.analysis.reading import pair_norms, quarter_shares, record
from fope_lab.data.problems import DataError
from fope_lab.model import Decoder

SMALL = FrequencyUsage(sequences=3, length=20, layer=1)
TEXT = "Some sixty letters are all that is read here, no more & no less."


def test_norms_are_the_absolute_values_of_complex_numbers() -> None:
    x = torch.randn(2, 3, 8)
    expected = torch.complex(x[..., :4], x[..., 4:]).abs()
    torch.testing.assert_close(pair_norms(x), expected)


def test_shares() -> None:
    fast, slow = quarter_shares(np.array([[1.0, 2, 0, 1], [0, 0, 0, 5]]))
    assert (fast.tolist(), slow.tolist()) == ([0.25, 0], [0.25, 1])
    assert [float(x) for x in quarter_shares(np.array([1.0, 3]))] == [0.25, 0.75]


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_means_are_over_tokens_and_passages(kv_heads: int) -> None:
    model = random_model(num_layers=3, num_kv_heads=kv_heads)
    rows = np.random.default_rng(0).integers(0, 272, (3, 11))
    found = mean_norms(model, rows)
    assert found["key"].shape == (3, kv_heads, 8)
    for layer, q, k, *_ in record(model, torch.from_numpy(rows)):
        for kind, x in (("query", q), ("key", k)):
            expected = (x[..., :8] ** 2 + x[..., 8:] ** 2).sqrt().mean(dim=(0, 2))
            np.testing.assert_allclose(found[kind][layer], expected, rtol=1e-5)


def test_pairs_that_are_used_are_seen(
    made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]
) -> None:
    """A head whose queries lie in the fastest pair and whose keys in the slowest."""
    query, key = torch.zeros(16), torch.zeros(16)
    query[8], key[7] = 1.0, 1.0
    model = made_by_hand({(1, 2): (query, key, 0)})
    subject = reading(model, TEXT)
    arrays = SMALL.compute(subject, ignore)
    assert arrays["query"][1, 2].argmax() == 0
    assert arrays["key"][1, 2].argmax() == 7
    assert arrays["query"][0].sum() == 0
    numbers = SMALL.numbers({name: x[1:2] for name, x in arrays.items() if x.ndim == 3})
    assert numbers["query_fast_share"] == pytest.approx(1)
    assert numbers["key_slow_share"] == pytest.approx(1)


def test_numbers_of_layers() -> None:
    even = np.ones((4, 2, 8))
    even[0, :, :2] = 4.0
    numbers = SMALL.numbers({"query": even, "key": np.ones((4, 2, 8))})
    assert numbers["query_fast_share_first"] == pytest.approx(8 / 14)
    assert numbers["query_fast_share_between"] == numbers["query_fast_share_last"] == 0.25
    assert numbers["key_slow_share"] == 0.25


@pytest.mark.parametrize("embedding", ["nope", "alibi", "sinusoidal"])
@pytest.mark.parametrize("analysis", ["frequency-usage", "cauchy-schwarz", "value-norms"])
def test_no_rotation_is_an_error(
    analysis: str, embedding: str, reading: Callable[..., Subject]
) -> None:
    small = parse_analysis({"type": analysis, "sequences": 3, "length": 20})
    with pytest.raises(DataError, match=f"{analysis} needs .* but {embedding} does not"):
        small.compute(reading(random_model(embedding), TEXT), ignore)


def test_a_layer_that_is_not_there(reading: Callable[..., Subject]) -> None:
    analysis = parse_analysis({**SMALL.canonical(), "layer": 3})
    with pytest.raises(DataError, match="layer: found 3, needs at most 2"):
        analysis.compute(reading(random_model(num_layers=3), TEXT), ignore)
