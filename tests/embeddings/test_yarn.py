"""YaRN against Hugging Face, and its options against the papers' formulas."""

from __future__ import annotations

import math

import pytest
import torch
from hugging_face import rope_init
from hypothesis import assume, given
from hypothesis import strategies as st

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.clip_floor import ClipFloor
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.yarn import Yarn


@given(
    head_dim=st.sampled_from([16, 32, 64, 128]),
    base=st.sampled_from([100.0, 10_000.0, 500_000.0]),
    length=st.integers(64, 8192),
    factor=st.floats(1.25, 64),
)
def test_yarn_is_hugging_faces(head_dim: int, base: float, length: int, factor: float) -> None:
    # Beyond this, Hugging Face's ramp turns around (see Yarn.apply).
    assume(length / (32 * 2 * math.pi) < base)
    expected, attention_factor = rope_init(
        "yarn",
        head_dim,
        math.ceil(length * factor),
        rope_theta=base,
        factor=factor,
        original_max_position_embeddings=length,
    )
    ladder = Yarn(factor=factor).apply(rope_ladder(head_dim, base=base, train_length=length))
    torch.testing.assert_close(torch.tensor(ladder.frequencies), expected, rtol=2e-6, atol=0)
    assert ladder.attention_factor == pytest.approx(attention_factor, rel=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 16.0), (0.5, 64.0)])
def test_yarn_takes_its_bounds_and_its_original_length(alpha: float, beta: float) -> None:
    expected, factor = rope_init(
        "yarn",
        64,
        4096,
        rope_theta=10_000.0,
        factor=8.0,
        original_max_position_embeddings=512,
        beta_slow=alpha,
        beta_fast=beta,
    )
    embedding = build_embedding(
        {"type": "yarn", "factor": 8, "alpha": alpha, "beta": beta, "original_length": 512},
        head_dim=64,
        num_heads=4,
        train_length=99,
    )
    torch.testing.assert_close(embedding.inv_freq.float(), expected, rtol=2e-6, atol=0)
    assert embedding.attention_factor == pytest.approx(factor, rel=1e-12)


def test_yarn_keeps_pairs_that_all_turn_often_enough() -> None:
    fast = rope_ladder(32, base=2.0, train_length=4096)
    assert min(fast.frequencies) * 4096 / (2 * math.pi) > 32
    assert Yarn(factor=4.0).apply(fast).frequencies == fast.frequencies


def test_without_truncation_the_ramps_ends_are_hugging_faces() -> None:
    sizes = {"rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 512}
    ladder = rope_ladder(64, base=10_000.0, train_length=512)
    expected, _ = rope_init("yarn", 64, 4096, truncate=False, **sizes)
    ours = Yarn(factor=8.0, truncate=False).apply(ladder).frequencies
    torch.testing.assert_close(torch.tensor(ours), expected, rtol=2e-6, atol=0)
    rounded, _ = rope_init("yarn", 64, 4096, **sizes)
    assert not torch.allclose(expected, rounded, rtol=1e-3, atol=0)


def test_an_attention_factor_can_be_given_or_left_out() -> None:
    ladder = rope_ladder(64, base=10_000.0, train_length=512)
    assert Yarn(factor=4.0).apply(ladder).attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert Yarn(factor=4.0, attention_factor=1.0).apply(ladder).attention_factor == 1.0
    assert Yarn(factor=4.0, attention_factor=1.5).apply(ladder).attention_factor == 1.5


def gamma(cycles: float, alpha: float, beta: float) -> float:
    """The paper's ramp (YaRN, Eq. 18), which is 1 where a pair is kept."""
    if cycles < alpha:
        return 0.0
    if cycles > beta:
        return 1.0
    return (cycles - alpha) / (beta - alpha)


@given(length=st.integers(64, 8192), factor=st.floats(1.25, 32), alpha=st.floats(0.5, 4))
def test_the_papers_ramp_is_linear_in_cycles(length: int, factor: float, alpha: float) -> None:
    """Eq. 19: (1 − γ)·θ/s + γ·θ."""
    ladder = rope_ladder(32, base=10_000.0, train_length=length)
    yarn = Yarn(factor=factor, alpha=alpha, ramp="cycles")
    for omega, ours in zip(ladder.frequencies, yarn.apply(ladder).frequencies, strict=True):
        kept = gamma(length * omega / (2 * math.pi), alpha, 32.0)
        assert ours == pytest.approx((1 - kept) * omega / factor + kept * omega, rel=1e-12)


@given(length=st.integers(64, 8192), factor=st.floats(1.25, 32))
def test_resonances_paper_blends_wavelengths(length: int, factor: float) -> None:
    """λ̂ = (1 − γ)·s·λ + γ·λ (Resonance RoPE, §3.3)."""
    ladder = rope_ladder(32, base=10_000.0, train_length=length)
    blended = Yarn(factor=factor, ramp="cycles", blend="wavelength").apply(ladder)
    for omega, ours in zip(ladder.frequencies, blended.frequencies, strict=True):
        wavelength = 2 * math.pi / omega
        kept = gamma(length / wavelength, 1.0, 32.0)
        expected = (1 - kept) * factor * wavelength + kept * wavelength
        assert 2 * math.pi / ours == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"ramp": "cycles"}, {"blend": "wavelength"}])
def test_a_pair_that_does_not_turn_stays_still(options: dict[str, str]) -> None:
    clipped = ClipFloor().apply(rope_ladder(64, base=10_000.0, train_length=512))
    after = Yarn(factor=4.0, **options).apply(clipped)  # type: ignore[arg-type]
    assert after.rotating == clipped.rotating


def test_the_length_is_the_original_one_never_the_extended_one() -> None:
    """Trained on from 512 at 2,048, a model's pairs are those of 512 if that is said."""
    ladder = rope_ladder(64, base=10_000.0, train_length=2048)
    short = rope_ladder(64, base=10_000.0, train_length=512)
    yarn = Yarn(factor=4.0, original_length=512)
    assert yarn.apply(ladder).frequencies == Yarn(factor=4.0).apply(short).frequencies


def test_pairs_that_are_all_slow_are_all_divided() -> None:
    """Hugging Face keeps them all: the ends of its ramp are then in the wrong order."""
    ladder = rope_ladder(32, base=10_000.0, train_length=2)
    assert max(ladder.frequencies) * 2 / (2 * math.pi) < 1
    divided = tuple(omega / 8 for omega in ladder.frequencies)
    for ramp in ("index", "cycles"):
        ours = Yarn(factor=8.0, ramp=ramp).apply(ladder)  # type: ignore[arg-type]
        assert ours.frequencies == pytest.approx(divided)


def test_an_option_without_effect_is_an_error() -> None:
    with pytest.raises(ValueError, match="truncate: false has no effect"):
        Yarn(factor=4.0, ramp="cycles", truncate=False)


@given(
    head_dim=st.sampled_from([16, 64, 128]),
    base=st.sampled_from([10_000.0, 500_000.0]),
    length=st.integers(64, 8192),
    factor=st.floats(1.25, 64),
)
def test_llama3_is_hugging_faces(head_dim: int, base: float, length: int, factor: float) -> None:
    expected, attention_factor = rope_init(
        "llama3",
        head_dim,
        math.ceil(length * factor),
        rope_theta=base,
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=length,
    )
    llama3 = {"type": "llama3", "factor": factor, "base": base}
    ours = build_embedding(llama3, head_dim=head_dim, num_heads=4, train_length=length)
    # Hugging Face's ramp is in float32, and steep: its ends are 3 cycles apart.
    torch.testing.assert_close(ours.inv_freq.float(), expected, rtol=2e-5, atol=0)
    assert ours.attention_factor == attention_factor == 1.0
