"""Attention without a bias, a block of queries at a time, in the dtype of its inputs.

A block of queries reads no key after it, and no key before the first document that it is part of.
The backward pass computes the weights of a block again, so that memory grows with the length and
not with its square. In bfloat16 the logits and weights are rounded to bfloat16, much as in
the plain ("eager") attention of transformers; softmax is computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.model.chunked_attention import Dropped
from fope_lab.model.no_compile import no_compile

QUERIES = 64
"""The queries in a block. Of 64, 128 and 256 this is the quickest on a CPU at most lengths: more
queries compute more of what the causal mask drops."""


class Packed(NamedTuple):
    """The documents of packed sequences, for attention in blocks.

    `numbers` are integers (batch, length), one for each document. `first` (length,) is the first
    token, in any sequence of the batch, of the documents that have a token in this place; without
    it, blocks read all tokens before them.
    """

    numbers: Tensor
    first: Tensor | None = None


@no_compile
def packed(numbers: Tensor) -> Packed:
    """Find where documents begin, by their numbers; their tokens need not be consecutive."""
    rows, length = numbers.shape
    low, high = numbers.aminmax()
    apart = (high - low + 1) * torch.arange(rows, device=numbers.device)[:, None]
    _, document = torch.unique(numbers - low + apart, return_inverse=True)
    place = torch.arange(length, device=numbers.device).repeat(rows)
    starts = torch.full_like(place, length).scatter_reduce(0, document.flatten(), place, "amin")
    return Packed(numbers, starts[document].amin(0))


@no_compile
def block_attention(
    q: Tensor, k: Tensor, v: Tensor, documents: Packed | None = None, dropout: float = 0.0
) -> Tensor:
    """softmax(q·kᵀ/√head_dim)·v over a token and those before it.

    q is (batch, num_heads, queries, head_dim), as is the result; k and v are
    (batch, num_kv_heads, length, head_dim). The queries are those of the last tokens. With
    `documents` a token attends only to tokens of its own document. `dropout` is the share of the
    weights that are set to 0, which torch's global generator draws.
    """
    dropped = Dropped(dropout, int(torch.randint(2**62, ()))) if dropout else None
    mixed: Tensor = _BlockAttention.apply(q, k, v, documents, dropped)
    return mixed


class _BlockAttention(torch.autograd.Function):
    """An autograd function that keeps its inputs, and no number for each pair of tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        documents: Packed | None,
        dropped: Dropped | None,
    ) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            blocks = _Blocks(q, k, documents, dropped)
            values = _by_key_head(v)
            mixed = [
                blocks.by_head(blocks.weights(block)[1] @ values[:, block.keys]) for block in blocks
            ]
        ctx.documents, ctx.dropped = documents, dropped
        ctx.save_for_backward(q, k, v)
        return _joined(mixed).reshape(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        with torch.autocast(q.device.type, enabled=False):
            blocks = _Blocks(q, k, ctx.documents, ctx.dropped)
            values = _by_key_head(v)
            grads_mixed = grad_out.reshape(q.shape).unflatten(1, (k.shape[1], -1)).flatten(0, 1)
            grads_q: list[Tensor] = []
            grad_k, grad_v = _Sum(values), _Sum(values)
            for block in blocks:
                weights, used = blocks.weights(block)
                grad_mixed = grads_mixed[:, :, block.queries].flatten(1, 2)
                grad_used = grad_mixed @ values[:, block.keys].mT
                grad_v.add(block.keys, used.mT @ grad_mixed)
                if ctx.dropped is not None:
                    grad_used *= ctx.dropped.factors(weights, block.start)
                grad_logits = torch._softmax_backward_data(grad_used, weights, -1, weights.dtype)
                grads_q.append(blocks.by_head(grad_logits @ blocks.k[:, block.keys]))
                grad_k.add(block.keys, grad_logits.mT @ blocks.of(block))
            grad_q = _joined(grads_q).mul_(blocks.scale)
        return (
            grad_q.reshape(q.shape),
            grad_k.total.to(k.dtype).view(k.shape),
            grad_v.total.to(v.dtype).view(v.shape),
            None,
            None,
        )


class _Sum:
    """A sum over blocks of numbers for the keys (…, keys, head_dim) that each of them reads.

    With several blocks it is float32 or wider, so that it is not rounded on the way.
    """

    def __init__(self, like: Tensor) -> None:
        self.total = like.new_empty(0)
        self._like = like

    def add(self, keys: slice, part: Tensor) -> None:
        """Add the part of one block."""
        if not self.total.numel():
            if part.shape == self._like.shape:  # the only block
                self.total = part
                return
            wide = torch.promote_types(part.dtype, torch.float32)
            self.total = torch.zeros_like(self._like, dtype=wide)
        self.total[:, keys] += part


def _joined(blocks: list[Tensor]) -> Tensor:
    """The queries of all blocks, (…, queries, head_dim)."""
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


class _Block(NamedTuple):
    """Queries of a block, as places among all queries, and the keys that it reads."""

    queries: slice
    keys: slice

    @property
    def start(self) -> int:
        """The token of the first query."""
        return self.keys.stop - (self.queries.stop - self.queries.start)


class _Blocks:
    """The blocks of an attention, and the weights of each.

    Heads that share keys are consecutive: `q` is (batch · num_kv_heads, group, queries, head_dim),
    scaled by 1/√head_dim, and `k` (batch · num_kv_heads, length, head_dim).
    """

    def __init__(
        self, q: Tensor, k: Tensor, documents: Packed | None, dropped: Dropped | None
    ) -> None:
        self.scale = 1 / math.sqrt(q.shape[-1])
        self.q = (q * self.scale).unflatten(1, (k.shape[1], -1)).flatten(0, 1)
        self.k = _by_key_head(k)
        self._numbers = None if documents is None else documents.numbers
        first = None if documents is None else documents.first
        self._first = None if first is None else first.tolist()
        self._dropped = dropped
        future = torch.full((QUERIES, QUERIES), -math.inf, dtype=q.dtype, device=q.device)
        self._future = future.triu(1)

    def __iter__(self) -> Iterator[_Block]:
        queries, tokens = self.q.shape[2], self.k.shape[1]
        for start in range(0, queries, QUERIES):
            stop = min(start + QUERIES, queries)
            of_tokens = slice(tokens - queries + start, tokens - queries + stop)
            first = 0 if self._first is None else min(self._first[of_tokens])
            yield _Block(slice(start, stop), slice(first, of_tokens.stop))

    def of(self, block: _Block) -> Tensor:
        """The scaled queries of a block, (batch · num_kv_heads, group · queries, head_dim)."""
        return self.q[:, :, block.queries].flatten(1, 2)

    def by_head(self, x: Tensor) -> Tensor:
        """Undo the shape of `of`."""
        return x.unflatten(1, (self.q.shape[1], -1))

    def weights(self, block: _Block) -> tuple[Tensor, Tensor]:
        """The softmax of a block, and what is left of it after dropout."""
        logits = self.of(block) @ self.k[:, block.keys].mT
        by_head = self.by_head(logits)
        count = by_head.shape[2]
        by_head[..., -count:] += self._future[:count, :count]
        if self._numbers is not None:
            own = self._numbers[:, block.start : block.keys.stop]
            other = own[:, :, None] != self._numbers[:, None, block.keys]
            rows = by_head.view(len(other), -1, *other.shape[1:])
            rows.masked_fill_(other[:, None], -math.inf)
        weights = logits.softmax(dim=-1)
        if self._dropped is None:
            return weights, weights
        return weights, weights * self._dropped.factors(weights, block.start)


def _by_key_head(x: Tensor) -> Tensor:
    """(batch, num_kv_heads, length, head_dim) as (batch · num_kv_heads, length, head_dim)."""
    return x.flatten(0, 1)
