"""Learned positions against torch's table, and their random offsets against the uniform law."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fope_lab.embeddings import EmbeddingError, build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import Decoder, ModelConfig

LENGTH = 16


def learned(**options: Any) -> PositionEmbedding:
    return build_embedding(
        {"type": "learned", **options}, head_dim=8, num_heads=2, hidden_size=20, train_length=LENGTH
    )


def offsets(embedding: PositionEmbedding, lengths: list[int], width: int, **part: int) -> Any:
    """The first positions of rows; the others follow one by one, up to the end of the table."""
    rows = {"first": 0, "rows": len(lengths), **part}
    positions = embedding.training_positions(torch.tensor(lengths), width, **rows)
    last = embedding.definition.longest_sequence(embedding.shape) - 1  # type: ignore[operator]
    expected = (positions[:, :1] + torch.arange(width)).clamp(max=last)
    assert torch.equal(positions, expected)
    return positions[:, 0].tolist()


def test_it_is_torchs_table_of_the_models_width() -> None:
    embedding = learned(num_positions=30)
    table = nn.Embedding(30, 20)
    table.weight = nn.Parameter(embedding.by_position)  # type: ignore[arg-type]
    hidden, positions = torch.randn(2, 9, 20), torch.tensor([range(9), range(21, 30)])
    torch.testing.assert_close(embedding.embed(hidden, positions), hidden + table(positions))
    assert embedding.by_position.shape == (30, 20)
    assert learned().by_position.shape == (LENGTH, 20)


def test_the_table_starts_as_gpt2s() -> None:
    values = learned(num_positions=5000).by_position.flatten().tolist()  # type: ignore[union-attr]
    assert scipy.stats.kstest(values, scipy.stats.norm(0, 0.02).cdf).pvalue > 1e-3


def test_evaluation_starts_at_0() -> None:
    for embedding in (learned(), learned(num_positions=30, random_offset=True)):
        assert torch.equal(embedding.positions(LENGTH), torch.arange(LENGTH))
        assert torch.equal(embedding.positions(4, offset=5), torch.arange(5, 9))


def test_without_an_offset_training_has_the_positions_of_evaluation() -> None:
    lengths = torch.tensor([4, 16])
    assert learned().training_positions(lengths, 16, first=0, rows=2) is None


@pytest.mark.parametrize("length", [3, 11, LENGTH])
def test_an_offset_is_uniform_over_all_that_leave_the_sequence_in_the_table(length: int) -> None:
    embedding = learned(num_positions=18, random_offset=True)
    found = offsets(embedding, [length] * 4000, LENGTH)
    counts = torch.tensor(found).bincount(minlength=19 - length)
    assert len(counts) == 19 - length
    assert scipy.stats.chisquare(counts.tolist()).pvalue > 1e-3


@given(
    lengths=st.lists(st.integers(1, LENGTH), min_size=1, max_size=12),
    spare=st.integers(1, 50),
    cut=st.integers(0, 12),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_a_divided_batch_draws_the_same_offsets(
    lengths: list[int], spare: int, cut: int, seed: int
) -> None:
    embedding = learned(num_positions=LENGTH + spare, random_offset=True)
    torch.manual_seed(seed)
    whole, after = offsets(embedding, lengths, LENGTH), torch.rand(1)
    parts = []
    for first, some in ((0, lengths[:cut]), (len(lengths[:cut]), lengths[cut:])):
        torch.manual_seed(seed)
        if some:
            parts += offsets(embedding, some, max(some), first=first, rows=len(lengths))
            assert torch.equal(torch.rand(1), after)
    assert parts == whole
    last = LENGTH + spare - 1
    assert all(
        0 <= first <= last - length + 1 for first, length in zip(whole, lengths, strict=True)
    )


def test_a_sequence_longer_than_the_table_is_an_error() -> None:
    message = "a sequence of 31 tokens is longer than the 30 positions of learned"
    embedding = learned(num_positions=30, random_offset=True)
    with pytest.raises(ValueError, match=message):
        embedding.positions(10, offset=21)
    with pytest.raises(ValueError, match=message):
        embedding.training_positions(torch.tensor([5]), 31, first=0, rows=1)
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=20)
    model = Decoder(config, "learned", train_length=LENGTH)
    with pytest.raises(ValueError, match=r"a sequence of 17 tokens .* the 16 positions"):
        model(torch.zeros(1, 17, dtype=torch.long))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_positions": 15}, "num_positions 15 is less than the training length 16"),
        ({"num_positions": 0}, "num_positions: found 0"),
        ({"random_offset": True}, "random_offset: num_positions 16 is the training length"),
        ({"random_offset": "yes"}, "random_offset: found 'yes'"),
        ({"factor": 2.0}, "factor"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(EmbeddingError, match=problem):
        learned(**options)
