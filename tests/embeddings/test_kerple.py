"""KERPLE's kernels against their closed forms, and the range of what they learn."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding

KERNELS = ["kerple", "kerple-power"]
every_kernel = pytest.mark.parametrize("name", KERNELS)
DISTANCES = torch.tensor([0, 1, 2, 7, 63, 512, 16_384, 1_000_000])


def kernel(name: str, num_heads: int = 4, **layout: int) -> PositionEmbedding:
    return build_embedding(name, head_dim=8, num_heads=num_heads, train_length=64, **layout)


def learned(name: str, p: Tensor, a: Tensor) -> dict[str, Tensor]:
    """The learned tensors that stand for p and a."""
    if name == "kerple":
        return {"log_p": p.log(), "log_a": a.log()}
    return {"log_a": a.log(), "p_logit": (p / (2 - p)).log()}


def p_and_a(embedding: PositionEmbedding) -> tuple[Tensor, Tensor]:
    """What the learned tensors stand for."""
    state = {name: tensor.double() for name, tensor in embedding.state_dict().items()}
    p = state["log_p"].exp() if "log_p" in state else 2 / (1 + (-state["p_logit"]).exp())
    return p, state["log_a"].exp()


def closed_form(name: str, p: float, a: float, distance: int) -> float:
    if name == "kerple":
        return -p * math.log(1 + a * distance)
    return -a * float(distance) ** p


def bias_of(name: str, p: float | list[float], a: float | list[float], positions: Tensor) -> Tensor:
    """The definition's bias between positions, in float64."""
    ps, as_ = (torch.tensor(x, dtype=torch.float64).reshape(-1) for x in (p, a))
    embedding = kernel(name, num_heads=len(ps))
    tensors = learned(name, ps, as_)
    return embedding.definition.bias(embedding.shape, tensors, positions, positions)


@every_kernel
def test_the_bias_is_the_closed_form(name: str) -> None:
    ps, as_ = [0.01, 0.7, 1.0, 1.99], [0.01, 0.4, 1.0, 3.0]
    bias = bias_of(name, ps, as_, DISTANCES)
    assert bias.dtype == torch.float64
    points = DISTANCES.tolist()
    expected = [
        [[closed_form(name, p, a, abs(i - j)) for j in points] for i in points]
        for p, a in zip(ps, as_, strict=True)
    ]
    torch.testing.assert_close(
        bias, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-14
    )


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_module_computes_in_float32_from_its_parameters(name: str, dtype: torch.dtype) -> None:
    embedding = kernel(name).to(dtype)
    bias = embedding.bias(DISTANCES, DISTANCES[:1])
    assert bias.dtype == torch.float32
    expected = [
        [[closed_form(name, p, a, distance)] for distance in DISTANCES.tolist()]
        for p, a in zip(*(x.tolist() for x in p_and_a(embedding)), strict=True)
    ]
    torch.testing.assert_close(bias, torch.tensor(expected), rtol=2e-5, atol=0)


@given(value=st.floats(-15, 15))
@settings(max_examples=50, deadline=None)
def test_no_step_takes_p_and_a_out_of_their_ranges(value: float) -> None:
    positions = torch.arange(3)
    for name in KERNELS:
        embedding = kernel(name)
        with torch.no_grad():
            for parameter in embedding.parameters():
                parameter.fill_(value)
        bias = embedding.bias(positions[:1], positions)
        _, one, two = bias[0, 0].tolist()
        assert two < one < 0
        if name == "kerple-power":  # 2^p, with p ≤ 2
            assert two / one <= 4


@every_kernel
def test_starting_values_are_uniform(name: str) -> None:
    """p in (0, 2) and a in (0, 1), at least 0.01 from the ends where a kernel ends there."""
    p, a = p_and_a(kernel(name, num_heads=20_000))
    highest = 2.0 if name == "kerple" else 1.99
    assert 0.01 - 1e-6 <= p.min().item() < 0.02
    assert 1.98 < p.max().item() <= highest + 1e-6
    assert 0.01 - 1e-6 <= a.min().item() < 0.02
    assert 0.99 < a.max().item() <= 1
    shares = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    torch.testing.assert_close(p.quantile(shares), 2 * shares, rtol=0, atol=0.03)
    torch.testing.assert_close(a.quantile(shares), shares, rtol=0, atol=0.015)
    assert abs(torch.corrcoef(torch.stack((p, a)))[0, 1].item()) < 0.03
