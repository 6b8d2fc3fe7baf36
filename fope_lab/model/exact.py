"""Attention as its formula says, a block of queries at a time, for what no fused kernel computes.

The backward pass computes each block again, so that memory grows with the length, not with its
square. All is computed in float32 or wider.

PyTorch's `checkpoint` would do the same, but builds a graph in the forward pass: the small objects
of each block lie between its large tensors and split the memory that these leave, until a longer
block finds no room in it. A layer of PaTH at 8,192 tokens took 15 GB on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fope_lab.embeddings.scores import Scores, wide
from fope_lab.model.block_attention import Dropped
from fope_lab.model.no_compile import no_compile
from fope_lab.model.seen import Block, Seen

QUERIES = 64
"""The queries in a block."""


@no_compile
def exact_attention(scores: Scores, v: Tensor, seen: Seen, dropout: float = 0.0) -> Tensor:
    """What `attend` (scores.py) returns, for any `Scores`."""
    tensors, rebuilt = _taken_apart(scores)
    how = _How(rebuilt, seen, Dropped.drawn(dropout))
    mixed: Tensor = _Exact.apply(how, v, *tensors)
    return mixed


class _How(NamedTuple):
    """How attention is computed from tensors, the values first."""

    rebuilt: Callable[[Sequence[Tensor]], Scores]
    seen: Seen
    dropped: Dropped | None

    def blocks(self) -> list[Block]:
        """The last first, whose keys are the most: what it leaves in memory has room for others."""
        return list(self.seen.blocks(QUERIES))[::-1]

    def mixed(self, block: Block, v: Tensor, *tensors: Tensor) -> Tensor:
        """The result of a block from wide tensors."""
        weights = weights_of(self.rebuilt(tensors), self.seen, block, v.dtype)
        if self.dropped is not None:
            weights = weights * self.dropped.factors(weights, block.tokens.start)
        groups = weights.shape[1] // v.shape[1]
        return weights @ v[:, :, block.keys].repeat_interleave(groups, dim=1)


class _Exact(torch.autograd.Function):
    """An autograd function that keeps its inputs, and no number for each pair of tokens."""

    @staticmethod
    def forward(ctx: Any, how: _How, *inputs: Tensor) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(*inputs)
        of_all = [wide(each) for each in inputs]
        v, q = inputs[:2]
        out = v.new_empty(*q.shape[:-1], v.shape[-1])
        with torch.autocast(v.device.type, enabled=False):
            for block in how.blocks():
                out[:, :, block.queries] = how.mixed(block, *of_all)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        inputs, how = ctx.saved_tensors, ctx.how
        needed = ctx.needs_input_grad[1:]
        leaves = [
            wide(each.detach()).requires_grad_(needs)
            for each, needs in zip(inputs, needed, strict=True)
        ]
        learning = [leaf for leaf in leaves if leaf.requires_grad]
        totals = [torch.zeros_like(leaf) for leaf in learning]
        grad_out = wide(grad_out)
        with torch.autocast(grad_out.device.type, enabled=False):
            for block in how.blocks():
                with torch.enable_grad():
                    mixed = how.mixed(block, *leaves)
                of_block = grad_out[:, :, block.queries]
                grads = torch.autograd.grad(mixed, learning, of_block, materialize_grads=True)
                for number, grad in enumerate(grads):
                    totals[number] += grad
        found = iter(totals)
        pairs = zip(inputs, needed, strict=True)
        return (None, *(next(found).to(each.dtype) if needs else None for each, needs in pairs))


def _taken_apart(scores: Scores) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Scores]]:
    """The tensors that get gradients, and what puts others in their place. It holds none of them,
    or gradient checkpointing of a layer would not free them."""
    named = ("q", "k", "table", "key_bias", "sink")
    own = {name: each for name in named if (each := getattr(scores, name)) is not None}
    names, counted = [*own, *scores.of], len(own)
    rows, logits, weights, cap = scores.rows, scores.logits, scores.weights, scores.cap
    tensors = [*own.values(), *scores.of.values(), *(() if rows is None else rows.learned)]

    def rebuilt(tensors: Sequence[Tensor]) -> Scores:
        given = list(zip(names, tensors, strict=False))
        bias = None if rows is None else rows.with_learned(tensors[len(names) :])
        fields: dict[str, Any] = dict(given[:counted])
        of = dict(given[counted:])
        return Scores(**fields, rows=bias, logits=logits, weights=weights, cap=cap, of=of)

    return tensors, rebuilt


def logits_of(scores: Scores, block: Block, dtype: torch.dtype) -> Tensor:
    """The logits (batch, num_heads, queries, keys) of a block; those of a key that its query does
    not see mean nothing."""
    q, k = scores.q, scores.k
    if scores.logits is not None:
        logits = scores.logits(scores, block.queries, block.keys).to(dtype)
    else:
        keys = k[:, :, block.keys].to(dtype).repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        logits = q[:, :, block.queries].to(dtype) @ keys.mT / math.sqrt(q.shape[-1])
    if scores.key_bias is not None:
        logits = logits + scores.key_bias[:, :, None, block.keys]
    if scores.rows is not None:
        logits = logits + scores.rows.rows(scores.rows.learned, block.tokens, block.keys)
    if scores.table is not None:
        logits = logits + _of_table(scores.table, block)
    return logits if scores.cap is None else scores.cap * torch.tanh(logits / scores.cap)


def _of_table(table: Tensor, block: Block) -> Tensor:
    """The bias (num_heads, queries, keys) of a block; any for a key after its query."""
    query = torch.arange(block.tokens.start, block.tokens.stop, device=table.device)
    key = torch.arange(block.keys.start, block.keys.stop, device=table.device)
    return table[:, (query[:, None] - key).clamp(min=0)]


def weights_of(scores: Scores, seen: Seen, block: Block, dtype: torch.dtype) -> Tensor:
    """The weights (batch, num_heads, queries, keys) of a block; 0 where a query sees nothing."""
    logits = logits_of(scores, block, dtype)
    mask = logits.new_zeros(logits.shape[0], 1, *logits.shape[2:])
    seen.hide(mask, block)
    hidden = mask < 0
    if scores.weights is not None:
        return scores.weights(scores, logits, hidden, block.queries)
    logits = logits.masked_fill(hidden, -math.inf)
    if scores.sink is None:
        return logits.softmax(dim=-1)
    sink = scores.sink.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat((logits, sink), dim=-1).softmax(dim=-1)[..., :-1]
