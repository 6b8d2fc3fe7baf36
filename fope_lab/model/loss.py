"""Cross-entropy of a linear head, without ever holding the logits of all tokens.

A chunk of tokens gets its logits, its loss and, since the gradient of the loss follows from the
logits alone, its part of the gradients at once; the logits are then dropped. Nothing is computed
twice, and memory grows with tokens · width and not with tokens · vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.model.config import CHUNK_LOGITS
from fope_lab.model.no_compile import no_compile

IGNORED = -100
"""The label of a token without loss (torch's default)."""


@no_compile
def linear_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Sum over the labels that are not IGNORED of −log softmax(hidden·weightᵀ)[label].

    hidden (tokens, width), weight (vocabulary, width), labels (tokens,); a float32 scalar in nats,
    or float64 for float64 inputs. Under autocast the products are in its dtype; the softmax is in
    float32 at least.
    """
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, labels)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        device = hidden.device.type
        dtype = hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        total = torch.zeros((), dtype=_wide(hidden.dtype), device=hidden.device)
        with torch.autocast(device, enabled=False):
            narrow = weight.to(dtype)
            grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
            grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
            rows = max(CHUNK_LOGITS // weight.shape[0], 1)
            for start in range(0, hidden.shape[0], rows):
                part = slice(start, start + rows)
                states = hidden[part].to(dtype)
                logits = (states @ narrow.mT).to(total.dtype)
                seen = labels[part] != IGNORED
                places = labels[part].where(seen, 0)[:, None]
                # In place, and softmax and its logarithm at once: each pass over a chunk counts.
                top = logits.amax(dim=-1, keepdim=True)
                losses = top - logits.gather(1, places)
                weights = logits.sub_(top).exp_()
                norm = weights.sum(dim=-1, keepdim=True)
                losses += norm.log()
                total += losses[:, 0].masked_fill(~seen, 0.0).sum()
                if grad_hidden is None and grad_weight is None:
                    continue
                # softmax − one-hot, 0 for ignored labels.
                one = seen.to(total.dtype)[:, None]
                grad_logits = weights.mul_(one / norm).scatter_add_(1, places, -one).to(dtype)
                if grad_hidden is not None:
                    grad_hidden[part] = grad_logits @ narrow
                if grad_weight is not None:
                    _add_product(grad_weight, grad_logits, states)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if one is None else one * grad.to(one.dtype) for one in ctx.saved_tensors)
        return *grads, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _add_product(total: Tensor, grad_logits: Tensor, states: Tensor) -> None:
    """total += grad_logitsᵀ·states, summed in total's dtype."""
    if grad_logits.dtype == total.dtype:
        total.addmm_(grad_logits.mT, states)
    else:
        total += grad_logits.mT @ states
