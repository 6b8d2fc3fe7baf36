"""FIRE against its equation and a network of torch's own layers, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fope_lab.embeddings import build_embedding, fire
from fope_lab.embeddings.module import PositionEmbedding

HEADS, LENGTH = 3, 16
POSITIONS = torch.arange(40)


def fire_of(num_heads: int = HEADS, **layout: int) -> PositionEmbedding:
    return build_embedding("fire", head_dim=8, num_heads=num_heads, train_length=LENGTH, **layout)


def doubled(embedding: PositionEmbedding) -> dict[str, Tensor]:
    """The learned tensors in float64."""
    return {
        name: value.detach().double().requires_grad_()
        for name, value in embedding.named_parameters()
    }


def definition_bias(
    embedding: PositionEmbedding, tensors: dict[str, Tensor], queries: Tensor, keys: Tensor
) -> Tensor:
    return embedding.definition.bias(embedding.shape, tensors, queries, keys)


class Reference(nn.Module):
    """The equation, one pair of tokens after the other, over torch's own layers."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.c = nn.Parameter(tensors["c"].detach())
        self.multiplier = nn.Parameter(tensors["length_multiplier"].detach())
        self.network = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, HEADS)).double()
        with torch.no_grad():
            self.network[0].weight.copy_(tensors["hidden_weight"][:, None])
            self.network[0].bias.copy_(tensors["hidden_bias"])
            self.network[2].weight.copy_(tensors["head_weight"])
            self.network[2].bias.copy_(tensors["head_bias"])

    def psi(self, x: Tensor) -> Tensor:
        return torch.log(self.c * x + 1)

    def forward(self, i: int, j: int) -> Tensor:
        """The biases of query i and key j ≤ i, one a head."""
        reach = torch.maximum(torch.tensor(float(i)), self.multiplier * LENGTH)
        return self.network(self.psi(torch.tensor(float(i - j))) / (self.psi(reach) + 1e-6))

    def gradients(self) -> dict[str, Tensor | None]:
        """By the names of ours."""
        weight = self.network[0].weight.grad
        return {
            "c": self.c.grad,
            "length_multiplier": self.multiplier.grad,
            "hidden_weight": None if weight is None else weight[:, 0],
            "hidden_bias": self.network[0].bias.grad,
            "head_weight": self.network[2].weight.grad,
            "head_bias": self.network[2].bias.grad,
        }


def moved(embedding: PositionEmbedding, seed: int) -> dict[str, Tensor]:
    """Tensors away from where they start: half the positions lie beyond L, as in training."""
    generator = torch.Generator().manual_seed(seed)
    tensors = doubled(embedding)
    with torch.no_grad():
        for value in tensors.values():
            value.mul_(1 + 0.3 * torch.rand(value.shape, generator=generator, dtype=value.dtype))
    return tensors


@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_are_those_of_the_equation(seed: int) -> None:
    embedding = fire_of(seed=seed)
    tensors = moved(embedding, seed)
    reference = Reference(tensors)
    earlier = torch.ones(40, 40, dtype=torch.bool).tril()
    ours = definition_bias(embedding, tensors, POSITIONS, POSITIONS)
    assert ours.dtype == torch.float64
    expected = torch.stack([reference(i, j) for i, j in earlier.nonzero().tolist()])
    torch.testing.assert_close(ours[:, earlier].T, expected, rtol=0, atol=1e-13)

    weights = torch.randn(expected.shape, dtype=torch.float64)
    (ours[:, earlier].T * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, gradient in reference.gradients().items():
        ours_gradient = tensors[name].grad
        assert ours_gradient.abs().sum() > 0
        torch.testing.assert_close(ours_gradient, gradient, rtol=1e-10, atol=1e-10)


def test_a_module_computes_in_float32() -> None:
    embedding = fire_of()
    exact = definition_bias(embedding, doubled(embedding), POSITIONS, POSITIONS)
    bias = embedding.bias(POSITIONS, POSITIONS)
    assert (bias.shape, bias.dtype) == ((HEADS, 40, 40), torch.float32)
    torch.testing.assert_close(bias.double(), exact, rtol=0, atol=1e-6)
    narrow = embedding.to(torch.bfloat16)
    bias = narrow.bias(POSITIONS, POSITIONS)
    assert bias.dtype == torch.float32
    exact = definition_bias(narrow, doubled(narrow), POSITIONS, POSITIONS)
    torch.testing.assert_close(bias.double(), exact, rtol=0, atol=1e-6)


@given(
    c=st.floats(-5, 5),
    multiplier=st.floats(-4, 4),
    gaps=st.lists(st.integers(0, 50_000), min_size=1, max_size=10),
)
@settings(max_examples=100, deadline=None)
def test_the_networks_input_is_a_share(c: float, multiplier: float, gaps: list[int]) -> None:
    """Between 0 and 1 whatever c and L became, and 0 for a key after its query."""
    embedding = fire_of()
    assert isinstance(embedding.definition, fire.Fire)
    positions = torch.tensor(gaps).cumsum(0)
    learned = {"c": torch.tensor([c]), "length_multiplier": torch.tensor([multiplier])}
    share = embedding.definition.normalised(embedding.shape, learned, positions, positions)
    assert share.isfinite().all()
    assert (share >= 0).all()
    assert (share <= 1).all()
    assert (share.triu() == 0).all()


def test_l_starts_at_the_training_length() -> None:
    """Up to there a bias depends on the distance alone; beyond, on the query's position too."""
    embedding = fire_of()

    def bias_at_distance_4(query: int) -> Tensor:
        bias = embedding.bias(torch.tensor([query]), torch.tensor([query - 4]))
        return bias

    assert torch.equal(bias_at_distance_4(5), bias_at_distance_4(LENGTH))
    assert not torch.allclose(bias_at_distance_4(LENGTH), bias_at_distance_4(2 * LENGTH))
    assert embedding.c.tolist() == pytest.approx([0.1])
    assert embedding.length_multiplier.tolist() == [1.0]


def test_a_step_past_zero_leaves_c_and_l_defined() -> None:
    embedding = fire_of()
    before = embedding.bias(POSITIONS, POSITIONS)
    with torch.no_grad():
        embedding.c.neg_()
        embedding.length_multiplier.neg_()
    after = embedding.bias(POSITIONS, POSITIONS)
    assert torch.equal(before, after)


def test_weights_start_as_those_of_linear_layers() -> None:
    """nn.Linear draws weights and biases uniformly within ±1/√inputs."""
    embedding = fire_of(num_heads=2000)
    drawn = [fire_of(seed=seed) for seed in range(200)]
    hidden = torch.cat([x for one in drawn for x in (one.hidden_weight, one.hidden_bias)])
    for values, bound in (
        (hidden, 1.0),
        (embedding.head_weight.flatten(), 1 / math.sqrt(32)),
        (embedding.head_bias, 1 / math.sqrt(32)),
    ):
        assert 0.99 * bound < values.max().item() <= bound
        assert -bound <= values.min().item() < -0.99 * bound
        shares = torch.linspace(0.1, 0.9, 9)
        assert values.quantile(shares).tolist() == pytest.approx(
            ((2 * shares - 1) * bound).tolist(), abs=0.06 * bound
        )
