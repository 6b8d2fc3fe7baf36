"""Cross-entropy of a linear head, without holding the logits of all tokens at once.

The forward pass computes the logits of a chunk of tokens, their loss and, because it follows from
the logits, the chunk's part of the gradients; it then drops the logits. Nothing is computed twice,
and memory grows with tokens · width and not with tokens · vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fope_lab.model.config import CHUNK_LOGITS
from fope_lab.model.no_compile import no_compile

IGNORED = -100
"""The label of a token without loss, as in torch."""

CACHED_LOGITS = 2**18
"""The logits whose softmax a CPU computes at once: 1 MiB in float32, which its caches hold."""


@no_compile
def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None = None
) -> Tensor:
    """The sum of −log softmax(hidden·weightᵀ)[label] over the labels that are not IGNORED.

    With a `cap` c, logits z become c·tanh(z/c) first.

    hidden is (tokens, width), weight (vocabulary, width) and labels (tokens,). The result is a
    scalar in nats: float32, or float64 for float64 inputs. Under autocast the products have its
    dtype; the softmax is in float32 or a wider type.
    """
    if not torch.is_grad_enabled():  # the function below can't see that, and would make gradients
        hidden, weight = hidden.detach(), weight.detach()
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, labels, cap)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, cap: float | None
    ) -> Tensor:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        of_hidden, of_weight, *_ = ctx.needs_input_grad
        with torch.autocast(device, enabled=False):
            narrow = weight.to(dtype)
            grad_hidden = torch.empty_like(hidden) if of_hidden else None
            grad_weight = None
            rows = max(CHUNK_LOGITS // weight.shape[0], 1)
            for start in range(0, hidden.shape[0], rows):
                part = slice(start, start + rows)
                states = hidden[part].to(dtype)
                logits = states @ narrow.mT
                pieces = _pieces(logits, labels[part], device)
                losses = [_loss(*piece, wide, of_hidden or of_weight, cap) for piece in pieces]
                total += (losses[0] if len(losses) == 1 else torch.cat(losses)).sum()
                # The gradient has taken the place of the logits.
                if grad_hidden is not None:
                    grad_hidden[part] = logits @ narrow
                if not of_weight:
                    continue
                if grad_weight is None:
                    grad_weight = (logits.mT @ states).to(weight.dtype)
                elif dtype == grad_weight.dtype:
                    grad_weight.addmm_(logits.mT, states)
                else:
                    grad_weight += logits.mT @ states
            if of_weight and grad_weight is None:
                grad_weight = torch.zeros_like(weight)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with `create_graph`
            raise RuntimeError("linear_cross_entropy has no second derivative")
        # In place: another backward pass through this graph, which nothing needs, is an error.
        grads = (None if g is None else g.mul_(grad.to(g.dtype)) for g in ctx.saved_tensors)
        return *grads, None, None


def _pieces(logits: Tensor, labels: Tensor, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of the logits with their labels, few enough for a CPU's caches."""
    rows = max(CACHED_LOGITS // logits.shape[1], 1) if device == "cpu" else logits.shape[0]
    return zip(logits.split(rows), labels.split(rows), strict=True)


def _loss(
    logits: Tensor, labels: Tensor, wide: torch.dtype, backward: bool, cap: float | None
) -> Tensor:
    """The losses (tokens,) of logits (tokens, vocabulary), which their gradient replaces if wanted.

    They are 0 for ignored labels. All is computed in the dtype `wide`.
    """
    values = logits.to(wide)
    if cap is not None:
        capped = torch.tanh(values / cap)
        values = cap * capped
    seen = labels != IGNORED
    places = labels.where(seen, 0)[:, None]
    # In place, with softmax and its logarithm at once, since each pass takes time.
    top = values.amax(dim=-1, keepdim=True)
    losses = top - values.gather(1, places)
    weights = values.sub_(top).exp_()
    norm = weights.sum(dim=-1, keepdim=True)
    losses += norm.log()
    if backward:
        # The gradient is softmax − one-hot, and 0 for ignored labels.
        ones = seen.to(wide)[:, None]
        weights.mul_(ones / norm).scatter_add_(1, places, -ones)
        if cap is not None:
            weights.mul_(1 - capped**2)
        if cap is not None or weights.dtype != logits.dtype:
            logits.copy_(weights)
    return losses[:, 0].masked_fill(~seen, 0.0)
