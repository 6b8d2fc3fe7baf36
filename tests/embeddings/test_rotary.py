"""Rotations against complex numbers in float64."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding

HEAD_DIM = 16


def as_complex(x: Tensor) -> Tensor:
    """Pair i, the dimensions i and i + head_dim/2, as a complex number."""
    first, second = x.double().chunk(2, dim=-1)
    return torch.complex(first, second)


def turned(x: Tensor, positions: Tensor, base: float, scale: float = 1.0) -> Tensor:
    """x·e^{iω_m n}·scale, with ω from its definition."""
    exponents = -2 * torch.arange(HEAD_DIM // 2, dtype=torch.float64) / HEAD_DIM
    angles = positions.double()[..., None] * base**exponents
    return scale * as_complex(x) * torch.polar(torch.ones_like(angles), angles)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_rotation_is_a_product_of_complex_numbers(kv_heads: int) -> None:
    embedding = build_embedding(
        "rope", head_dim=HEAD_DIM, num_heads=4, num_kv_heads=kv_heads, train_length=64
    )
    q, k = torch.randn(2, 4, 50, HEAD_DIM), torch.randn(2, kv_heads, 50, HEAD_DIM)
    positions = torch.arange(7, 57)
    for rotated, x in zip(embedding.rotate(q, k, positions), (q, k), strict=True):
        assert rotated.dtype == torch.float32
        torch.testing.assert_close(
            as_complex(rotated), turned(x, positions, 10_000.0), rtol=0, atol=2e-6
        )


def test_the_attention_factor_scales_every_pair_of_queries_and_keys() -> None:
    spec = {"type": "rotary", "transforms": ["clip_floor", {"type": "yarn", "factor": 8}]}
    embedding = build_embedding(spec, head_dim=HEAD_DIM, num_heads=1, train_length=64)
    assert embedding.attention_factor == pytest.approx(0.1 * math.log(8) + 1)
    assert embedding.inv_freq[-1] == 0  # a pair that does not turn is scaled all the same
    q, k = torch.randn(1, 1, 9, HEAD_DIM), torch.randn(1, 1, 9, HEAD_DIM)
    for rotated, x in zip(embedding.rotate(q, k, torch.arange(9)), (q, k), strict=True):
        norms = as_complex(rotated).abs() / as_complex(x).abs()
        torch.testing.assert_close(
            norms, torch.full_like(norms, embedding.attention_factor), rtol=1e-5, atol=0
        )


def test_angles_stay_exact_far_beyond_training() -> None:
    """At position 10⁷, angles of float32 would be off by up to half a radian, and float32
    frequencies by 0.3 radians."""
    embedding = build_embedding("rope", head_dim=HEAD_DIM, num_heads=1, train_length=64)
    one = torch.zeros(1, 1, 1, HEAD_DIM)
    one[..., : HEAD_DIM // 2] = 1
    position = 10_000_019
    rotated, _ = embedding.rotate(one, one, torch.tensor([position]))
    omegas = [10_000.0 ** (-2 * pair / HEAD_DIM) for pair in range(HEAD_DIM // 2)]
    expected = [cmath.exp(1j * position * omega) for omega in omegas]
    torch.testing.assert_close(
        as_complex(rotated).flatten(),
        torch.tensor(expected, dtype=torch.complex128),
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_queries_keep_their_dtype_and_lose_only_its_rounding(dtype: torch.dtype) -> None:
    embedding = build_embedding("rope", head_dim=HEAD_DIM, num_heads=1, train_length=64)
    q = torch.randn(1, 1, 40, HEAD_DIM).to(dtype)
    positions = torch.arange(3000, 3040)
    rotated, _ = embedding.rotate(q, q, positions)
    assert rotated.dtype == dtype
    exact = torch.view_as_real(turned(q, positions, 10_000.0)).transpose(-1, -2).flatten(-2)
    allowed = max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(rotated.double(), exact, rtol=allowed, atol=2e-4)
