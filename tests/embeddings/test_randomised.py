"""Randomised positions: the draw, and that a forward pass has one."""

from __future__ import annotations

import collections
import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.embeddings import EmbeddingError, build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.randomised import Randomised
from fope_lab.model import Decoder, ModelConfig

LENGTH = 16


def random_rope(**options: object) -> PositionEmbedding:
    return build_embedding(
        {"type": "random-rope", **options}, head_dim=8, num_heads=2, train_length=LENGTH
    )


def longest(embedding: PositionEmbedding) -> int | None:
    assert isinstance(embedding.definition, Randomised)
    return embedding.definition.longest_sequence(embedding.shape)


@given(
    length=st.integers(1, 40),
    offset=st.integers(0, 40),
    spare=st.integers(0, 1000),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_positions_are_the_end_of_a_sorted_sample(
    length: int, offset: int, spare: int, seed: int
) -> None:
    max_length = max(length + offset + spare, LENGTH)
    embedding = random_rope(max_length=max_length)
    torch.manual_seed(seed)
    positions = embedding.positions(length, offset=offset)
    assert (positions.shape, positions.dtype) == ((length,), torch.int64)
    assert (positions.diff() > 0).all()
    assert offset <= positions[0] <= positions[-1] < max_length
    torch.manual_seed(seed)
    assert torch.equal(embedding.positions(offset + length)[offset:], positions)


def test_every_subset_is_equally_likely() -> None:
    """All C(19, 17) subsets of 17 positions out of 19, by a chi-square test."""
    embedding = random_rope(max_length=19)
    draws = 6_000
    counts = collections.Counter(tuple(embedding.positions(17).tolist()) for _ in range(draws))
    subsets = math.comb(19, 17)
    assert len(counts) == subsets
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_draw_follows_the_global_generator() -> None:
    embedding = random_rope()
    torch.manual_seed(5)
    first, second = embedding.positions(10), embedding.positions(10)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(embedding.positions(10), first)
    state = torch.get_rng_state()  # what a checkpoint holds
    third = embedding.positions(10)
    assert torch.equal(third, second)
    torch.set_rng_state(state)
    assert torch.equal(embedding.positions(10), third)


def test_there_are_16_training_lengths_of_positions_by_default() -> None:
    embedding = random_rope()
    assert longest(embedding) == 16 * LENGTH
    assert torch.equal(embedding.positions(16 * LENGTH), torch.arange(16 * LENGTH))
    assert longest(random_rope(max_length=100)) == 100


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_length": LENGTH - 1}, "max_length 15 is less than the training length 16"),
        ({"max_length": 0}, "max_length: found 0"),
        (
            {"transforms": [{"type": "dynamic_ntk"}]},
            "dynamic_ntk changes frequencies with the length of the sequence, which randomised",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(EmbeddingError, match=problem):
        random_rope(**options)
    random_rope(max_length=LENGTH)


@pytest.mark.parametrize("transforms", [[], [{"type": "interpolate", "factor": 4.0}]])
def test_at_given_positions_it_is_rotary(transforms: list[object]) -> None:
    rotary = build_embedding(
        {"type": "rotary", "transforms": transforms}, head_dim=8, num_heads=2, train_length=LENGTH
    )
    embedding = random_rope(transforms=transforms)
    q, k = torch.randn(2, 3, 2, 9, 8)
    for positions in (torch.arange(9), torch.tensor([0, 3, 4, 50, 51, 52, 99, 200, 255])):
        for ours, theirs in zip(
            embedding.rotate(q, k, positions), rotary.rotate(q, k, positions), strict=True
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("training", [True, False])
def test_a_forward_pass_has_one_draw_for_all_layers(training: bool) -> None:
    """Of queries and keys, also at evaluation: a decoder with RoPE at those positions."""
    config = ModelConfig(num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, vocab_size=20)
    model, rope = (
        Decoder(config, name, train_length=LENGTH, seed=1).train(training)
        for name in ("random-rope", "rope")
    )
    embedding = model.position_embeddings[0]
    assert isinstance(embedding, PositionEmbedding)
    tokens = torch.arange(10)[None]
    torch.manual_seed(3)
    drawn = embedding.positions(10)
    torch.manual_seed(3)
    with torch.no_grad():
        logits = model(tokens).logits
        assert torch.equal(logits, rope(tokens, drawn).logits)
        assert not torch.allclose(model(tokens).logits, logits)
