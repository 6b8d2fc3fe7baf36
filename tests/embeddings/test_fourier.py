"""FoPE against its equations 11 to 13, in complex float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.fourier import _among
from fope_lab.embeddings.module import PositionEmbedding

HEAD_DIM, HEADS, LENGTH = 32, 4, 64


def fope(**options: object) -> PositionEmbedding:
    sizes = {"head_dim": HEAD_DIM, "num_heads": HEADS, "train_length": LENGTH}
    layout = {
        name: options.pop(name)
        for name in ("num_kv_heads", "seed", "layer", *sizes)
        if name in options
    }
    return build_embedding({"type": "fope", "base": 129, **options}, **{**sizes, **layout})


def as_complex(x: Tensor) -> Tensor:
    first, second = x.double().chunk(2, dim=-1)
    return torch.complex(first, second)


def frequencies(base: float) -> Tensor:
    return base ** (-2 * torch.arange(HEAD_DIM // 2, dtype=torch.float64) / HEAD_DIM)


def test_the_series_is_equation_13() -> None:
    """With the same coefficients a for both parts: e^{iω_m n} + Σ_ω a_ω e^{iωn}, or 1."""
    embedding = fope(sigma=0.5)
    embedding.sin_coef.copy_(embedding.cos_coef)
    omegas = frequencies(129)
    floor = 2 * math.pi / LENGTH
    kept = int((omegas >= floor).sum())
    assert 0 < kept < HEAD_DIM // 2
    noise = embedding.cos_coef.double() - torch.eye(kept, dtype=torch.float64)
    q = torch.randn(2, HEADS, 200, HEAD_DIM)
    rotated = as_complex(embedding.rotate(q, q, torch.arange(200))[0])
    for head in range(HEADS):
        for m, omega in enumerate(omegas):
            for n in (0, 1, 63, 64, 199):
                series = torch.exp(1j * omegas[:kept] * n)
                factor = (
                    torch.exp(1j * omega * n) + (noise[head, :, m] * series).sum()
                    if omega >= floor
                    else 1.0
                )
                expected = as_complex(q)[:, head, n, m] * factor
                torch.testing.assert_close(rotated[:, head, n, m], expected, rtol=0, atol=3e-5)


def test_cosines_and_sines_have_coefficients_of_their_own() -> None:
    embedding = fope(sigma=0.5)
    assert not torch.equal(embedding.cos_coef, embedding.sin_coef)
    kept = embedding.cos_coef.shape[-1]
    angles = torch.arange(150, dtype=torch.float64)[:, None] * frequencies(129)[:kept]
    real = angles.cos() @ embedding.cos_coef.double()
    imaginary = angles.sin() @ embedding.sin_coef.double()
    k = torch.randn(1, HEADS, 150, HEAD_DIM)
    _, rotated = embedding.rotate(k, k, torch.arange(150))
    expected = as_complex(k)[..., :kept] * torch.complex(real, imaginary)
    torch.testing.assert_close(as_complex(rotated)[..., :kept], expected, rtol=0, atol=3e-5)
    torch.testing.assert_close(as_complex(rotated)[..., kept:], as_complex(k)[..., kept:])


def test_a_query_head_has_its_key_heads_coefficients() -> None:
    grouped = fope(num_kv_heads=2)
    assert grouped.cos_coef.shape[0] == 2
    q, k = torch.randn(1, HEADS, 30, HEAD_DIM), torch.randn(1, 2, 30, HEAD_DIM)
    rotated_q, rotated_k = grouped.rotate(q, k, torch.arange(30))
    full = fope()
    full.cos_coef.copy_(grouped.cos_coef[[0, 0, 1, 1]])
    full.sin_coef.copy_(grouped.sin_coef[[0, 0, 1, 1]])
    expected_q, expected_k = full.rotate(q, k.repeat_interleave(2, dim=1), torch.arange(30))
    torch.testing.assert_close(rotated_q, expected_q)
    torch.testing.assert_close(rotated_k.repeat_interleave(2, dim=1), expected_k)


@pytest.mark.parametrize("options", [{}, {"num_frequencies": 64}])
def test_yarn_after_the_floor_keeps_the_pairs_and_the_coefficients(options: dict[str, int]) -> None:
    plain = fope(**options)
    extended = build_embedding(
        {"type": "fope-yarn", "base": 129, "factor": 4, **options},
        head_dim=HEAD_DIM,
        num_heads=HEADS,
        train_length=LENGTH,
    )
    assert torch.equal(plain.inv_freq == 0, extended.inv_freq == 0)
    assert torch.equal(plain.cos_coef, extended.cos_coef)
    assert (extended.inv_freq <= plain.inv_freq).all()
    assert (extended.inv_freq < plain.inv_freq).any()


omegas = st.floats(min_value=1e-6, max_value=3.2)
errors = st.floats(min_value=-3e-9, max_value=3e-9)


@given(st.lists(omegas, max_size=20), omegas, errors)
def test_a_frequency_is_among_others_but_for_rounding(
    others: list[float], omega: float, error: float
) -> None:
    for one in (omega, *(other * (1 + error) for other in others)):
        expected = any(math.isclose(one, other, rel_tol=1e-9) for other in others)
        assert _among(one, sorted(others)) == expected
