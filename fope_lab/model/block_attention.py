"""Attention a block of queries at a time: memory grows with the length, not with its square.

The logits of a block exist only while it is computed, and the backward pass computes them again.

`chunked_attention` has a bias, and computes in float32 or a wider type on every device.
`block_attention` has none, and computes in the dtype of its inputs: in bfloat16 it rounds logits
and weights to bfloat16, much as the plain ("eager") attention of transformers does, and computes
softmax in float32. Of packed documents, its blocks read no key before the first document that they
are part of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import flex
from fope_lab.model.no_compile import no_compile

QUERIES = 64
"""The queries in a block without a bias. Of 64, 128 and 256 this is the quickest on a CPU at most
lengths: more queries compute more of what the causal mask drops."""

BIASED_QUERIES = 32
"""The queries in a block with a bias. On a CPU, fewer make thin matrix products; more do not fit
its caches, and compute more of what the causal mask drops."""

CPU_PAIRS, PAIRS = 2**14, 2**17
"""The largest number of pairs of tokens whose bias is computed at once, on a CPU and elsewhere. A
network such as FIRE's has hidden layers that are several times as large as the bias, and keeps some
for the gradient. They should fit the caches of a CPU, and fill other devices."""


class PairBias:
    """The bias that an embedding computes from the positions (…, length) of each pair of tokens.

    `learned` are the tensors of the bias that get gradients.
    """

    def __init__(self, embedding: PositionEmbedding, positions: Tensor) -> None:
        self._definition, self._shape = embedding.definition, embedding.shape
        self._positions = positions
        self._fixed = dict(embedding.named_buffers())
        self._names = tuple(name for name, _ in embedding.named_parameters())
        self.learned = tuple(embedding.parameters())

    def rows(self, learned: Sequence[Tensor], start: int, stop: int) -> Tensor:
        """The bias (…, num_heads, stop − start, stop) of tokens `start` to `stop`."""
        parts = self._parts(start, stop, stop)
        return torch.cat([self._bias(learned, *part, stop) for part in parts], dim=-2)

    def add_gradients(
        self, totals: Sequence[Tensor], learned: Sequence[Tensor], start: int, gradient: Tensor
    ) -> None:
        """Add to `totals` the gradients of `learned`, by automatic differentiation.

        `gradient` (batch, num_heads, queries, stop) is that of `rows`.
        """
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
        query, key = self._positions[..., first:end], self._positions[..., :stop]
        return self._definition.bias(self._shape, tensors, query, key)

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
        """Add the sums of the gradient along its diagonals (see `PairBias.add_gradients`)."""
        [total] = totals
        for row, of_row in enumerate(gradient.sum(0).unbind(-2), start=start):
            total[:, : row + 1] += of_row[:, : row + 1].flip(-1)


class Documents(NamedTuple):
    """The documents of packed sequences: a token attends only to tokens of its own document.

    `numbers` are integers (batch, length), one for each document. All layers share the rest.
    `first` (length,) is the first token, in any sequence of the batch, of the documents that have a
    token in this place; without it, blocks read all tokens before them. `kernel` is the BlockMask
    for FlexAttention on CUDA.
    """

    numbers: Tensor
    first: Tensor | None = None
    kernel: Any = None

    @classmethod
    def of(cls, numbers: Tensor, embedding: PositionEmbedding) -> Documents:
        """The documents as attention with this embedding needs them."""
        if embedding.biases:
            return cls(numbers)
        if numbers.device.type == "cuda":  # blocks are for dtypes that the kernel can't multiply
            return cls(numbers, kernel=flex.document_blocks(numbers))
        return packed(numbers)


@no_compile
def packed(numbers: Tensor) -> Documents:
    """Find where documents begin, by their numbers; their tokens need not be consecutive."""
    rows, length = numbers.shape
    low, high = numbers.aminmax()
    apart = (high - low + 1) * torch.arange(rows, device=numbers.device)[:, None]
    _, document = torch.unique(numbers - low + apart, return_inverse=True)
    place = torch.arange(length, device=numbers.device).repeat(rows)
    starts = torch.full_like(place, length).scatter_reduce(0, document.flatten(), place, "amin")
    return Documents(numbers, starts[document].amin(0))


@no_compile
def block_attention(
    q: Tensor, k: Tensor, v: Tensor, documents: Documents | None = None, dropout: float = 0.0
) -> Tensor:
    """softmax(q·kᵀ/√head_dim)·v over a token and those before it.

    q is (batch, num_heads, queries, head_dim), as is the result; k and v are
    (batch, num_kv_heads, length, head_dim). The queries are those of the last tokens. With
    `documents` a token attends only to tokens of its own document. `dropout` is the share of the
    weights that are set to 0, which torch's global generator draws.
    """
    blocks = _Blocks(documents, Dropped.drawn(dropout))
    mixed: Tensor = _Attention.apply(q, k, v, blocks)
    return mixed


@no_compile
def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: PairBias | TableBias,
    documents: Documents | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over a token and those before it; see `block_attention`."""
    blocks = _Blocks(documents, Dropped.drawn(dropout), bias)
    mixed: Tensor = _Attention.apply(q, k, v, blocks, *bias.learned)
    return mixed


class Dropped(NamedTuple):
    """The weights that dropout sets to 0: a share of them, which is drawn again where needed."""

    share: float
    seed: int

    @classmethod
    def drawn(cls, share: float) -> Dropped | None:
        """A new seed from torch's global generator; None if nothing is dropped."""
        return cls(share, int(torch.randint(2**62, ()))) if share else None

    def factors(self, weights: Tensor, start: int) -> Tensor:
        """What the weights of the block that starts with token `start` are multiplied by."""
        generator = torch.Generator(weights.device).manual_seed(self.seed + start)
        kept = torch.empty_like(weights).bernoulli_(1 - self.share, generator=generator)
        return kept.div_(1 - self.share)


class _Attention(torch.autograd.Function):
    """An autograd function that keeps its inputs, and no number for each pair of tokens."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: _Blocks, *learned: Tensor
    ) -> Tensor:
        out, root = blocks.empty(q), math.sqrt(q.shape[-1])
        of_bias = [_wide(tensor) for tensor in learned]
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (blocks.by_key_head(x, k) for x in (k, v))
            for block in blocks.of(q, k):
                queries = blocks.by_key_head(q[:, :, block.queries], k)
                # Two roundings, on which the numbers of earlier trainings depend.
                queries = queries * (1 / root) if blocks.bias is None else queries / root
                weights = blocks.weights(block, queries, keys, of_bias, q.shape[1])
                if blocks.dropped is not None:
                    weights.mul_(blocks.dropped.factors(weights, block.start))
                mixed = weights @ values[:, block.keys]
                out[:, :, block.queries] = _like(q[:, :, block.queries], mixed)
        ctx.blocks = blocks
        ctx.save_for_backward(q, k, v, *learned)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *learned = ctx.saved_tensors
        blocks: _Blocks = ctx.blocks
        scale = 1 / math.sqrt(q.shape[-1])
        of_bias = [_wide(tensor) for tensor in learned]
        grad_learned = [torch.zeros_like(tensor) for tensor in of_bias]
        grad_q = blocks.empty(q)
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (blocks.by_key_head(x, k) for x in (k, v))
            # The sums over blocks are wide, so that they are not rounded on the way.
            grad_keys, grad_values = (torch.zeros_like(_wide(x)) for x in (keys, values))
            for block in blocks.of(q, k):
                queries = blocks.by_key_head(q[:, :, block.queries], k) * scale
                grad_mixed = blocks.by_key_head(grad_out[:, :, block.queries], k)
                weights = blocks.weights(block, queries, keys, of_bias, q.shape[1])
                grad_logits = grad_mixed @ values[:, block.keys].mT
                used = weights
                if blocks.dropped is not None:
                    factors = blocks.dropped.factors(weights, block.start)
                    used = weights * factors
                    grad_logits.mul_(factors)
                _add(grad_values[:, block.keys], used.mT, grad_mixed)
                grad_logits = blocks.softmax_gradient(grad_logits, weights)
                del weights, used
                of_block = _like(q[:, :, block.queries], grad_logits @ keys[:, block.keys])
                grad_q[:, :, block.queries] = of_block * scale
                _add(grad_keys[:, block.keys], grad_logits.mT, queries)
                if blocks.bias is not None and any(ctx.needs_input_grad[4:]):
                    by_head = grad_logits.view(*q.shape[:2], -1, block.keys.stop)
                    blocks.bias.add_gradients(grad_learned, of_bias, block.start, by_head)
        pairs = zip(grad_learned, learned, strict=True)
        return (
            grad_q,
            _like(k, grad_keys),
            _like(v, grad_values),
            None,
            *(grad.to(tensor.dtype) for grad, tensor in pairs),
        )


class _Block(NamedTuple):
    """Queries of a block, as places among all queries, and the keys that it reads."""

    queries: slice
    keys: slice

    @property
    def start(self) -> int:
        """The token of the first query."""
        return self.keys.stop - (self.queries.stop - self.queries.start)


class _Blocks(NamedTuple):
    """How attention is computed in blocks; the dtype, the size and the rounding follow the bias."""

    documents: Documents | None
    dropped: Dropped | None
    bias: PairBias | TableBias | None = None

    def of(self, q: Tensor, k: Tensor) -> Iterator[_Block]:
        """Yield the blocks of queries and keys (batch, heads, length, head_dim)."""
        size = QUERIES if self.bias is None else BIASED_QUERIES
        queries, tokens = q.shape[2], k.shape[2]
        starts = None
        if self.documents is not None and self.documents.first is not None:
            starts = self.documents.first.tolist()
        for start in range(0, queries, size):
            stop = min(start + size, queries)
            own = slice(tokens - queries + start, tokens - queries + stop)
            first = 0 if starts is None else min(starts[own])
            yield _Block(slice(start, stop), slice(first, own.stop))

    def empty(self, q: Tensor) -> Tensor:
        """Memory for a result, whose layout orders (and rounds) the sums taken of it."""
        return q.new_empty(q.shape) if self.bias is None else torch.empty_like(q)

    def by_key_head(self, x: Tensor, k: Tensor) -> Tensor:
        """(batch, heads, length, head_dim) as (batch · num_kv_heads, …, head_dim).

        Heads that share keys are consecutive. With a bias the result is float32 or wider.
        """
        x = x if self.bias is None else _wide(x)
        return x.unflatten(1, (k.shape[1], -1)).flatten(2, 3).flatten(0, 1)

    def weights(
        self, block: _Block, queries: Tensor, keys: Tensor, of_bias: Sequence[Tensor], heads: int
    ) -> Tensor:
        """The softmax of a block, before dropout, for queries and keys by key head."""
        logits = queries @ keys[:, block.keys].mT
        count = block.queries.stop - block.queries.start
        by_head = logits.view(-1, heads, count, logits.shape[-1])
        if self.bias is not None:
            by_head += self.bias.rows(of_bias, block.start, block.keys.stop)
        future = torch.ones(count, count, dtype=torch.bool, device=queries.device).triu(1)
        by_head[..., -count:].masked_fill_(future, -math.inf)
        if self.documents is not None:
            numbers = self.documents.numbers
            own = numbers[:, block.start : block.keys.stop, None]
            by_head.masked_fill_((own != numbers[:, None, block.keys])[:, None], -math.inf)
        return logits.softmax(dim=-1)

    def softmax_gradient(self, gradient: Tensor, weights: Tensor) -> Tensor:
        """weights · (gradient − its mean under the weights); with a bias in place."""
        if self.bias is None:
            return torch._softmax_backward_data(gradient, weights, -1, weights.dtype)
        gradient.mul_(weights)
        return gradient.addcmul_(weights, gradient.sum(-1, keepdim=True), value=-1)


def _add(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to a sum, which may be wider."""
    if total.dtype == left.dtype:
        total.baddbmm_(left, right)
    else:
        total += left @ right


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _like(x: Tensor, by_key_head: Tensor) -> Tensor:
    """Undo `by_key_head`, with the shape and dtype of x."""
    return by_key_head.unflatten(0, (x.shape[0], -1)).reshape(x.shape).to(x.dtype)
