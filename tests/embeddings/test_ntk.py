"""PI, NTK and dynamic NTK against Hugging Face and against a larger base."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hugging_face import rope_init
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.embeddings import EmbeddingError, build_embedding
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.interpolate import Interpolate
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.ntk import DynamicNtk, Ntk
from fope_lab.embeddings.truncate import Truncate

HEAD_DIM, LENGTH = 64, 512


def build(spec: Any) -> PositionEmbedding:
    return build_embedding(spec, head_dim=HEAD_DIM, num_heads=4, train_length=LENGTH)


def rope(base: float) -> PositionEmbedding:
    return build({"type": "rope", "base": base})


@given(factor=st.floats(1, 64), base=st.floats(100, 1e6))
def test_position_interpolation_is_hugging_faces_linear(factor: float, base: float) -> None:
    expected, _ = rope_init("linear", HEAD_DIM, LENGTH, rope_theta=base, factor=factor)
    ladder = rope_ladder(HEAD_DIM, base=base, train_length=LENGTH)
    ours = Interpolate(factor=factor).apply(ladder).frequencies
    torch.testing.assert_close(torch.tensor(ours), expected, rtol=2e-6, atol=0)


@given(factor=st.floats(1, 64), head_dim=st.sampled_from([4, 32, 128]))
def test_ntk_is_rope_of_a_larger_base(factor: float, head_dim: int) -> None:
    """base·s^(d/(d−2)), so that the slowest pair is divided by s and the fastest is kept."""
    ladder = rope_ladder(head_dim, base=10_000.0, train_length=LENGTH)
    scaled = Ntk(factor=factor).apply(ladder)
    base = 10_000.0 * factor ** (head_dim / (head_dim - 2))
    expected = rope_ladder(head_dim, base=base, train_length=LENGTH)
    assert scaled.frequencies == pytest.approx(expected.frequencies, rel=1e-12)
    assert scaled.base == pytest.approx(base)
    assert scaled.frequencies[0] == 1
    assert scaled.frequencies[-1] == pytest.approx(ladder.frequencies[-1] / factor)


def test_ntk_as_resonances_paper_writes_it() -> None:
    linear = build({"type": "ntk", "factor": 4, "base_scaling": "linear"})
    torch.testing.assert_close(linear.inv_freq, rope(40_000.0).inv_freq)


@pytest.mark.parametrize("transform", [Ntk(factor=4.0), DynamicNtk(original_length=64)])
def test_still_pairs_stay_still(transform: Ntk | DynamicNtk) -> None:
    ladder = Truncate(p=0.5).apply(rope_ladder(64, base=10_000.0, train_length=512))
    assert transform.apply(ladder).rotating == ladder.rotating


@given(length=st.integers(1, 20_000), growth=st.just(1.0) | st.floats(1, 16))
def test_dynamic_ntk_is_hugging_faces(length: int, growth: float) -> None:
    expected, _ = rope_init(
        "dynamic", HEAD_DIM, LENGTH, seq_len=length, rope_theta=10_000.0, factor=growth
    )
    ladder = rope_ladder(HEAD_DIM, base=10_000.0, train_length=LENGTH, length=length)
    ours = DynamicNtk(growth=growth).apply(ladder).frequencies
    torch.testing.assert_close(torch.tensor(ours), expected, rtol=2e-6, atol=0)


def test_dynamic_ntk_is_rope_up_to_the_training_length_and_ntk_beyond() -> None:
    dynamic = build("dynamic-ntk")
    torch.testing.assert_close(dynamic.inv_freq, rope(10_000.0).inv_freq)
    q, k = torch.randn(2, 1, 4, 2048, HEAD_DIM)
    for length, factor in ((512, 1), (1024, 2), (2048, 4)):
        positions = torch.arange(length)
        base = 10_000.0 * factor ** (HEAD_DIM / (HEAD_DIM - 2))
        cut = (q[:, :, :length], k[:, :, :length])
        for ours, ropes in zip(
            dynamic.rotate(*cut, positions), rope(base).rotate(*cut, positions), strict=True
        ):
            torch.testing.assert_close(ours, ropes, rtol=0, atol=2e-5)


def test_dynamic_ntk_keeps_nothing_from_one_sequence_to_the_next() -> None:
    dynamic = build("dynamic-ntk")
    q, k = torch.randn(2, 1, 4, 2048, HEAD_DIM)
    short = (q[:, :, :600], k[:, :, :600], torch.arange(600))
    before, _ = dynamic.rotate(*short)
    dynamic.rotate(q, k, torch.arange(2048))
    after, _ = dynamic.rotate(*short)
    assert torch.equal(before, after)


def test_sequences_of_a_batch_have_their_own_lengths() -> None:
    dynamic = build("dynamic-ntk")
    q, k = torch.randn(2, 2, 4, 8, HEAD_DIM)
    positions = torch.stack([torch.arange(8), torch.arange(2000, 2008)])
    together, _ = dynamic.rotate(q, k, positions)
    for index in range(2):
        alone, _ = dynamic.rotate(q[index : index + 1], k[index : index + 1], positions[index])
        assert torch.equal(together[index : index + 1], alone)
    torch.testing.assert_close(
        together[:1], rope(10_000.0).rotate(q[:1], k[:1], positions[0])[0], rtol=0, atol=1e-6
    )


def test_an_original_length_beyond_the_training_length_is_one_too() -> None:
    dynamic = build({"type": "dynamic-ntk", "original_length": 4 * LENGTH})
    q = torch.randn(1, 4, 8 * LENGTH, HEAD_DIM)
    for length, base in ((4 * LENGTH, 1e4), (8 * LENGTH, 1e4 * 2 ** (HEAD_DIM / (HEAD_DIM - 2)))):
        cut, positions = q[:, :, :length], torch.arange(length)
        expected, _ = rope(base).rotate(cut, cut, positions)
        torch.testing.assert_close(dynamic.rotate(cut, cut, positions)[0], expected)


def test_an_empty_sequence_has_no_length_to_follow() -> None:
    empty = torch.empty(1, 4, 0, HEAD_DIM)
    turned, _ = build("dynamic-ntk").rotate(empty, empty, torch.arange(0))
    assert turned.shape == empty.shape


@pytest.mark.parametrize("spec", [{"type": "ntk", "factor": 4}, "dynamic-ntk"])
def test_a_head_of_one_pair_is_an_error(spec: Any) -> None:
    with pytest.raises(EmbeddingError, match="head_dim 2 is too small to scale the base"):
        build_embedding(spec, head_dim=2, num_heads=4, train_length=LENGTH)
