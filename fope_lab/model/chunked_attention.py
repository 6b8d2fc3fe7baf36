"""Attention with a bias, a few queries at a time: memory grows with the length, not its square.

The logits and the bias of a chunk exist only while the chunk is computed, and the backward pass
computes them again. All of it is in float32 or a wider type, on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model.no_compile import no_compile

QUERIES = 32
"""The queries in a chunk. On a CPU, fewer make thin matrix products; more do not fit its caches,
and compute more of what the causal mask drops."""

CPU_PAIRS, PAIRS = 2**14, 2**17
"""The largest number of pairs of tokens whose bias is computed at once, on a CPU and elsewhere. A
network such as FIRE's has hidden layers that are several times as large as the bias, and keeps some
for the gradient. They should fit the caches of a CPU, and fill other devices."""


class Bias(Protocol):
    """A bias of attention logits, whose rows a chunk computes from the tensors `learned`."""

    @property
    def learned(self) -> Sequence[Tensor]:
        """The tensors of the bias that get gradients."""
        ...

    def rows(self, learned: Sequence[Tensor], start: int, stop: int) -> Tensor:
        """The bias (…, num_heads, stop − start, stop) of tokens `start` to `stop`."""
        ...

    def add_gradients(
        self, totals: Sequence[Tensor], learned: Sequence[Tensor], start: int, gradient: Tensor
    ) -> None:
        """Add to `totals` the gradients of `learned`.

        `gradient` (batch, num_heads, queries, stop) is that of `rows`.
        """
        ...


class PairBias:
    """The bias that an embedding computes from the positions (…, length) of each pair of tokens."""

    def __init__(self, embedding: PositionEmbedding, positions: Tensor) -> None:
        self._definition, self._shape = embedding.definition, embedding.shape
        self._positions = positions
        self._fixed = dict(embedding.named_buffers())
        self._names = tuple(name for name, _ in embedding.named_parameters())
        self.learned = tuple(embedding.parameters())

    def rows(self, learned: Sequence[Tensor], start: int, stop: int) -> Tensor:
        """The rows of the embedding's bias (see `Bias.rows`)."""
        parts = self._parts(start, stop, stop)
        return torch.cat([self._bias(learned, *part, stop) for part in parts], dim=-2)

    def add_gradients(
        self, totals: Sequence[Tensor], learned: Sequence[Tensor], start: int, gradient: Tensor
    ) -> None:
        """Add the gradients by automatic differentiation (see `Bias.add_gradients`)."""
        queries, stop = gradient.shape[-2:]
        leaves = [tensor.detach().requires_grad_() for tensor in learned]
        for first, end in self._parts(start, start + queries, stop):
            with torch.enable_grad():
                bias = self._bias(leaves, first, end, stop)
            if not bias.requires_grad:  # the learned tensors belong to a rotation
                return
            part = gradient[..., first - start : end - start, :].sum_to_size(bias.shape)
            grads = torch.autograd.grad(bias, leaves, part.to(bias.dtype), materialize_grads=True)
            for total, grad in zip(totals, grads, strict=True):
                total.add_(grad)

    def _bias(self, learned: Sequence[Tensor], first: int, end: int, stop: int) -> Tensor:
        """The bias of tokens `first` to `end` and all tokens before `stop`."""
        tensors = {**self._fixed, **dict(zip(self._names, learned, strict=True))}
        positions = self._positions
        return self._definition.bias(
            self._shape, tensors, positions[..., first:end], positions[..., :stop]
        )

    def _parts(self, start: int, end: int, stop: int) -> Iterator[tuple[int, int]]:
        """Divide the queries `start` to `end` into parts small enough for `stop` keys."""
        pairs = CPU_PAIRS if self._positions.device.type == "cpu" else PAIRS
        step = max(pairs // stop, 1)
        return ((first, min(first + step, end)) for first in range(start, end, step))


class TableBias:
    """A bias from a table (num_heads, length), by the distance of a key before its query."""

    def __init__(self, table: Tensor) -> None:
        self.learned = (table,)

    def rows(self, learned: Sequence[Tensor], start: int, stop: int) -> Tensor:
        """The rows of the table, each shifted by one token; a key after its query has bias 0."""
        [table] = learned
        # Row i is table[i], table[i − 1] …: windows of the reversed table, the last query's first.
        far_to_near = F.pad(table[:, :stop].flip(-1), (0, stop - start - 1))
        return far_to_near.unfold(-1, stop, 1).flip(-2)

    def add_gradients(
        self, totals: Sequence[Tensor], learned: Sequence[Tensor], start: int, gradient: Tensor
    ) -> None:
        """Add the sums of the gradient along its diagonals (see `Bias.add_gradients`)."""
        [total] = totals
        for row, of_row in enumerate(gradient.sum(0).unbind(-2), start=start):
            total[:, : row + 1] += of_row[:, : row + 1].flip(-1)


@no_compile
def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Bias,
    documents: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over a token and those before it.

    q is (batch, num_heads, queries, head_dim), as is the result; k and v are
    (batch, num_kv_heads, length, head_dim). The queries are those of the last tokens. With
    `documents`, integers (batch, length), a token attends only to tokens of the same number.
    `dropout` is the share of the weights that are set to 0, which torch's global generator draws.
    """
    dropped = Dropped(dropout, int(torch.randint(2**62, ()))) if dropout else None
    mixed: Tensor = _ChunkedAttention.apply(q, k, v, bias, documents, dropped, *bias.learned)
    return mixed


class Dropped(NamedTuple):
    """The weights that dropout sets to 0: a share of them, which is drawn again where needed."""

    share: float
    seed: int

    def factors(self, weights: Tensor, start: int) -> Tensor:
        """What the weights of the chunk that starts with token `start` are multiplied by."""
        generator = torch.Generator(weights.device).manual_seed(self.seed + start)
        kept = torch.empty_like(weights).bernoulli_(1 - self.share, generator=generator)
        return kept.div_(1 - self.share)


class _ChunkedAttention(torch.autograd.Function):
    """An autograd function that keeps its inputs, and no number for each pair of tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Bias,
        documents: Tensor | None,
        dropped: Dropped | None,
        *learned: Tensor,
    ) -> Tensor:
        out = torch.empty_like(q)
        of_bias = [_wide(tensor) for tensor in learned]
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (_by_key_head(x, k.shape[1]) for x in (k, v))
            for chunk, start, stop in _chunks(q, k):
                queries = _by_key_head(q[:, :, chunk], k.shape[1]) / math.sqrt(q.shape[-1])
                rows = bias.rows(of_bias, start, stop)
                weights = _weights(queries, keys[:, :stop], rows, documents)
                if dropped is not None:
                    weights.mul_(dropped.factors(weights, start))
                out[:, :, chunk] = _like(q[:, :, chunk], weights @ values[:, :stop])
        ctx.bias, ctx.dropped = bias, dropped
        ctx.save_for_backward(q, k, v, documents, *learned)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, documents, *learned = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        of_bias = [_wide(tensor) for tensor in learned]
        grad_learned = [torch.zeros_like(tensor) for tensor in of_bias]
        grad_q = torch.empty_like(q)
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (_by_key_head(x, k.shape[1]) for x in (k, v))
            grad_keys, grad_values = torch.zeros_like(keys), torch.zeros_like(values)
            for chunk, start, stop in _chunks(q, k):
                queries = _by_key_head(q[:, :, chunk], k.shape[1]) * scale
                grad_mixed = _by_key_head(grad_out[:, :, chunk], k.shape[1])
                rows = ctx.bias.rows(of_bias, start, stop)
                weights = _weights(queries, keys[:, :stop], rows, documents)
                grad_logits = grad_mixed @ values[:, :stop].mT
                used = weights
                if ctx.dropped is not None:
                    factors = ctx.dropped.factors(weights, start)
                    used = weights * factors
                    grad_logits.mul_(factors)
                grad_values[:, :stop].baddbmm_(used.mT, grad_mixed)
                # The gradient of softmax: weights · (gradient − its mean under the weights).
                grad_logits.mul_(weights)
                grad_logits.addcmul_(weights, grad_logits.sum(-1, keepdim=True), value=-1)
                del weights, used
                grad_q[:, :, chunk] = _like(q[:, :, chunk], grad_logits @ keys[:, :stop]) * scale
                grad_keys[:, :stop].baddbmm_(grad_logits.mT, queries)
                if any(ctx.needs_input_grad[6:]):
                    by_head = grad_logits.view(*q.shape[:2], -1, stop)
                    ctx.bias.add_gradients(grad_learned, of_bias, start, by_head)
        pairs = zip(grad_learned, learned, strict=True)
        return (
            grad_q,
            _like(k, grad_keys),
            _like(v, grad_values),
            None,
            None,
            None,
            *(grad.to(tensor.dtype) for grad, tensor in pairs),
        )


def _chunks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, int, int]]:
    """Yield the chunks of QUERIES queries: their slice of q, first token and end."""
    queries, tokens = q.shape[2], k.shape[2]
    for first in range(0, queries, QUERIES):
        end = min(first + QUERIES, queries)
        yield slice(first, end), tokens - queries + first, tokens - queries + end


def _weights(queries: Tensor, keys: Tensor, bias: Tensor, documents: Tensor | None) -> Tensor:
    """softmax(queries·keysᵀ + bias), where the queries are those of the last tokens."""
    logits = queries @ keys.mT
    by_head = logits.view(-1, *bias.shape[-3:])
    by_head += bias
    count = bias.shape[-2]
    future = torch.ones(count, count, dtype=torch.bool, device=bias.device).triu(1)
    by_head[..., -count:].masked_fill_(future, -math.inf)
    if documents is not None:
        stop = bias.shape[-1]
        own = documents[:, stop - count : stop]
        by_head.masked_fill_((own[:, :, None] != documents[:, None, :stop])[:, None], -math.inf)
    return logits.softmax(dim=-1)


def _by_key_head(x: Tensor, num_kv_heads: int) -> Tensor:
    """(batch, heads, length, head_dim) as (batch · num_kv_heads, …, head_dim).

    Heads that share keys are consecutive. The result is float32 or wider, and a view if possible.
    """
    return _wide(x).unflatten(1, (num_kv_heads, -1)).flatten(2, 3).flatten(0, 1)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _like(x: Tensor, by_key_head: Tensor) -> Tensor:
    """Undo `_by_key_head`, with the shape and dtype of x."""
    return by_key_head.unflatten(0, (x.shape[0], -1)).reshape(x.shape).to(x.dtype)
