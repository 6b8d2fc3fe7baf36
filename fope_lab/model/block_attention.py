"""Attention a block of queries at a time: memory grows with the length, not with its square.

The logits of a block exist only while it is computed, and the backward pass computes them again.

`chunked_attention` has a bias, and computes in float32 or a wider type on every device.
`block_attention` has none, and computes in the dtype of its inputs: in bfloat16 it rounds logits
and weights to bfloat16, much as the plain ("eager") attention of transformers does, and computes
softmax in float32. A block reads no key before the first that its queries see, so that a window
costs no more than its width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.embeddings.scores import PairBias, wide
from fope_lab.model.no_compile import no_compile
from fope_lab.model.seen import Block, Seen

QUERIES = 64
"""The queries in a block without a bias. Of 64, 128 and 256 this is the quickest on a CPU at most
lengths: more queries compute more of what the causal mask drops."""

BIASED_QUERIES = 32
"""The queries in a block with a bias. On a CPU, fewer make thin matrix products; more do not fit
its caches, and compute more of what the causal mask drops."""


class TableBias:
    """A bias from a table (num_heads, length), by the distance of a key before its query."""

    def __init__(self, table: Tensor) -> None:
        self.learned = (table,)

    def rows(self, learned: Sequence[Tensor], queries: slice, keys: slice) -> Tensor:
        """The rows of the table, each shifted by one token; a key after its query has bias 0."""
        [table], start, stop = learned, queries.start - keys.start, queries.stop - keys.start
        # Row i is table[i], table[i − 1] …: windows of the reversed table, the last query's first.
        far_to_near = F.pad(table[:, :stop].flip(-1), (0, stop - start - 1))
        return far_to_near.unfold(-1, stop, 1).flip(-2)

    def add_gradients(
        self,
        totals: Sequence[Tensor],
        learned: Sequence[Tensor],
        queries: slice,
        keys: slice,
        gradient: Tensor,
    ) -> None:
        """Add the sums of the gradient along its diagonals (see `PairBias.add_gradients`)."""
        [total], start = totals, queries.start - keys.start
        for row, of_row in enumerate(gradient.sum(0).unbind(-2), start=start):
            total[:, : row + 1] += of_row[:, : row + 1].flip(-1)


@no_compile
def block_attention(q: Tensor, k: Tensor, v: Tensor, seen: Seen, dropout: float = 0.0) -> Tensor:
    """softmax(q·kᵀ/√head_dim)·v over the tokens that each query sees.

    q is (batch, num_heads, queries, head_dim), as is the result; k and v are
    (batch, num_kv_heads, keys, head_dim). `dropout` is the share of the weights that are set to 0,
    which torch's global generator draws.
    """
    blocks = _Blocks(seen, Dropped.drawn(dropout))
    mixed: Tensor = _Attention.apply(q, k, v, blocks)
    return mixed


@no_compile
def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: PairBias | TableBias,
    seen: Seen,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over the tokens that each query sees; see
    `block_attention`."""
    blocks = _Blocks(seen, Dropped.drawn(dropout), bias)
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
        of_bias = [wide(tensor) for tensor in learned]
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (blocks.by_key_head(x, k) for x in (k, v))
            for block in blocks:
                queries = blocks.by_key_head(q[:, :, block.queries], k)
                # Two roundings, on which the numbers of earlier trainings depend.
                queries = queries * (1 / root) if blocks.bias is None else queries / root
                weights = blocks.weights(block, queries, keys, of_bias, q.shape[1])
                if blocks.dropped is not None:
                    weights.mul_(blocks.dropped.factors(weights, block.tokens.start))
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
        of_bias = [wide(tensor) for tensor in learned]
        grad_learned = [torch.zeros_like(tensor) for tensor in of_bias]
        grad_q = blocks.empty(q)
        with torch.autocast(q.device.type, enabled=False):
            keys, values = (blocks.by_key_head(x, k) for x in (k, v))
            # The sums over blocks are wide, so that they are not rounded on the way.
            grad_keys, grad_values = (torch.zeros_like(wide(x)) for x in (keys, values))
            for block in blocks:
                queries = blocks.by_key_head(q[:, :, block.queries], k) * scale
                grad_mixed = blocks.by_key_head(grad_out[:, :, block.queries], k)
                weights = blocks.weights(block, queries, keys, of_bias, q.shape[1])
                grad_logits = grad_mixed @ values[:, block.keys].mT
                used = weights
                if blocks.dropped is not None:
                    factors = blocks.dropped.factors(weights, block.tokens.start)
                    used = weights * factors
                    grad_logits.mul_(factors)
                _add(grad_values[:, block.keys], used.mT, grad_mixed)
                grad_logits = blocks.softmax_gradient(grad_logits, weights)
                del weights, used
                of_block = _like(q[:, :, block.queries], grad_logits @ keys[:, block.keys])
                grad_q[:, :, block.queries] = of_block * scale
                _add(grad_keys[:, block.keys], grad_logits.mT, queries)
                if blocks.bias is not None and any(ctx.needs_input_grad[4:]):
                    by_head = grad_logits.view(*q.shape[:2], -1, grad_logits.shape[-1])
                    places = block.tokens, block.keys
                    blocks.bias.add_gradients(grad_learned, of_bias, *places, by_head)
        pairs = zip(grad_learned, learned, strict=True)
        return (
            grad_q,
            _like(k, grad_keys),
            _like(v, grad_values),
            None,
            *(grad.to(tensor.dtype) for grad, tensor in pairs),
        )


@dataclass(frozen=True)
class _Blocks:
    """How attention is computed in blocks; the dtype, the size and the rounding follow the bias."""

    seen: Seen
    dropped: Dropped | None
    bias: PairBias | TableBias | None = None

    def __iter__(self) -> Iterator[Block]:
        return self.seen.blocks(QUERIES if self.bias is None else BIASED_QUERIES)

    def empty(self, q: Tensor) -> Tensor:
        """Memory for a result, whose layout orders (and rounds) the sums taken of it."""
        return q.new_empty(q.shape) if self.bias is None else torch.empty_like(q)

    def by_key_head(self, x: Tensor, k: Tensor) -> Tensor:
        """(batch, heads, length, head_dim) as (batch · num_kv_heads, …, head_dim).

        Heads that share keys are consecutive. With a bias the result is float32 or wider.
        """
        x = x if self.bias is None else wide(x)
        return x.unflatten(1, (k.shape[1], -1)).flatten(2, 3).flatten(0, 1)

    def weights(
        self, block: Block, queries: Tensor, keys: Tensor, of_bias: Sequence[Tensor], heads: int
    ) -> Tensor:
        """The softmax of a block, before dropout, for queries and keys by key head."""
        logits = queries @ keys[:, block.keys].mT
        count = block.queries.stop - block.queries.start
        by_head = logits.view(-1, heads, count, logits.shape[-1])
        if self.bias is not None:
            by_head += self.bias.rows(of_bias, block.tokens, block.keys)
        self.seen.hide(by_head, block)
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


def _like(x: Tensor, by_key_head: Tensor) -> Tensor:
    """Undo `by_key_head`, with the shape and dtype of x."""
    return by_key_head.unflatten(0, (x.shape[0], -1)).reshape(x.shape).to(x.dtype)
