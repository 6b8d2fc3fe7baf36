"""Cross-entropy of a linear head, without holding the logits of all tokens at once.

The forward pass computes the logits of a chunk of tokens, their loss and, because it follows from
the logits, the chunk's part of the gradients; it then drops the logits. Nothing is computed twice,
and memory grows with tokens · width and not with tokens · vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.model.config import CHUNK_LOGITS
from fope_lab.model.no_compile import no_compile

IGNORED = -100
"""The label of a token without loss, as in torch."""


@no_compile
def linear_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """The sum of −log softmax(hidden·weightᵀ)[label] over the labels that are not IGNORED.

    hidden is (tokens, width), weight (vocabulary, width) and labels (tokens,). The result is a
    scalar in nats: float32, or float64 for float64 inputs. Under autocast the products have its
    dtype; the softmax is in float32 or a wider type.
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
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=hidden.device)
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
                # In place, with softmax and its logarithm at once, since each pass takes time.
                top = logits.amax(dim=-1, keepdim=True)
                losses = top - logits.gather(1, places)
                weights = logits.sub_(top).exp_()
                norm = weights.sum(dim=-1, keepdim=True)
                losses += norm.log()
                total += losses[:, 0].masked_fill(~seen, 0.0).sum()
                if grad_hidden is None and grad_weight is None:
                    continue
                # The gradient is softmax − one-hot, and 0 for ignored labels.
                ones = seen.to(total.dtype)[:, None]
                grad_logits = weights.mul_(ones / norm).scatter_add_(1, places, -ones).to(dtype)
                if grad_hidden is not None:
                    grad_hidden[part] = grad_logits @ narrow
                if grad_weight is not None and dtype == grad_weight.dtype:
                    grad_weight.addmm_(grad_logits.mT, states)
                elif grad_weight is not None:
                    grad_weight += grad_logits.mT @ states
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if g is None else g * grad.to(g.dtype) for g in ctx.saved_tensors)
        return *grads, None
