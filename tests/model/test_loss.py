"""The chunked loss against torch's cross-entropy on all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fope_lab.model import loss as module
from fope_lab.model.loss import IGNORED, linear_cross_entropy


def inputs(
    tokens: int, width: int, vocabulary: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, width, generator=generator, dtype=dtype)
    weight = torch.randn(vocabulary, width, generator=generator, dtype=dtype)
    labels = torch.randint(0, vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), labels


def plain(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(hidden @ weight.T, labels, ignore_index=IGNORED, reduction="sum")


@given(
    tokens=st.integers(1, 40),
    vocabulary=st.integers(2, 30),
    chunk=st.integers(1, 400),
    ignored=st.sets(st.integers(0, 39)),
)
@settings(max_examples=60, deadline=None)
def test_loss_and_gradients_are_those_of_all_logits_at_once(
    tokens: int, vocabulary: int, chunk: int, ignored: set[int]
) -> None:
    hidden, weight, labels = inputs(tokens, 6, vocabulary)
    labels[[token for token in ignored if token < tokens]] = IGNORED
    expected = torch.autograd.grad(3 * plain(hidden, weight, labels), (hidden, weight))
    before, module.CHUNK_LOGITS = module.CHUNK_LOGITS, chunk
    try:
        ours = linear_cross_entropy(hidden, weight, labels)
    finally:
        module.CHUNK_LOGITS = before
    torch.testing.assert_close(ours, plain(hidden, weight, labels), rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(3 * ours, (hidden, weight))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_without_gradients_only_the_logits_are_computed() -> None:
    hidden, weight, labels = inputs(9, 4, 11)
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        loss = linear_cross_entropy(hidden, weight, labels)
    assert counted.get_total_flops() == 2 * 9 * 4 * 11
    torch.testing.assert_close(loss, plain(hidden, weight, labels).detach())


def test_a_second_derivative_is_refused() -> None:
    hidden, weight, labels = inputs(9, 4, 11)
    loss = linear_cross_entropy(hidden, weight, labels)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_a_frozen_head_or_input_gets_no_gradient() -> None:
    hidden, weight, labels = inputs(9, 4, 11)
    linear_cross_entropy(hidden, weight.detach(), labels).backward()
    expected = torch.autograd.grad(plain(hidden, weight, labels), (hidden, weight))
    torch.testing.assert_close(hidden.grad, expected[0])
    linear_cross_entropy(hidden.detach(), weight, labels).backward()
    torch.testing.assert_close(weight.grad, expected[1])
    assert not linear_cross_entropy(hidden.detach(), weight.detach(), labels).requires_grad


@pytest.mark.parametrize("autocast", [False, True])
def test_narrow_products_have_a_wide_softmax(autocast: bool) -> None:
    """bfloat16 logits of up to 300 carry an error of about 1: of the products, not the softmax."""
    hidden, weight, labels = inputs(200, 64, 500, torch.float32)
    exact = plain(hidden.double(), weight.double(), labels)
    dtype = torch.float32 if autocast else torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ours = linear_cross_entropy(hidden.to(dtype), weight.to(dtype), labels)
    assert ours.dtype == torch.float32
    products = hidden.bfloat16() @ weight.bfloat16().T
    rounded = F.cross_entropy(products.float(), labels, reduction="sum")
    torch.testing.assert_close(ours, rounded, rtol=1e-5, atol=0)
    assert ours.item() == pytest.approx(exact.item(), rel=0.02)
    for gradient in torch.autograd.grad(ours, (hidden, weight)):
        assert gradient.dtype == torch.float32


def test_large_logits_do_not_overflow() -> None:
    hidden = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    ours = linear_cross_entropy(hidden, weight, torch.tensor([1, 0]))
    assert ours.item() == 4000.0
    ours.backward()
    assert torch.isfinite(hidden.grad).all()  # type: ignore[arg-type]
