"""Attention with a bias of distance, or over packed documents, as one fused kernel: PyTorch's
FlexAttention on CUDA.

Nothing is imported or compiled before a GPU first needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fope_lab.model.no_compile import no_compile

if TYPE_CHECKING:
    from fope_lab.model.seen import Seen

BLOCK = 128
"""The queries, and the keys, of a block, which the kernel skips if the mask drops all of it."""

LEAST_HEAD_DIM = 16
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
"""The dtypes that the kernel can multiply."""

OPTIONS = {"FORCE_USE_FLEX_ATTENTION": True}
"""The kernel for few queries, which Inductor would take for short sequences, does not compile for
all numbers of queries that share keys."""

RECOMPILATIONS = 64
"""The limit of kernels in a process. There is one each for the first length and for all others, for
a learned and a fixed bias, with and without gradients, for each number of heads, head_dim and
dtype."""


def fits(q: Tensor, k: Tensor) -> bool:
    """Whether the kernel takes queries and keys (batch, heads, length, head_dim) like these."""
    return (
        q.device.type == "cuda"
        and q.dtype in DTYPES
        and q.shape[3] >= LEAST_HEAD_DIM
        and q.shape[2] == k.shape[2]
    )


@no_compile  # one graph with what makes the table or the blocks does not compile
def flex_attention(
    q: Tensor, k: Tensor, v: Tensor, seen: Seen, table: Tensor | None = None
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over the tokens that each query sees.

    q is (batch, num_heads, length, head_dim), as is the result; k and v have num_kv_heads. The bias
    of a key d tokens before its query is table[head, d]; `table` is float32 (num_heads, length) and
    gets its gradient.
    """

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # The kernel also reads keys after their query and drops them: the index must be valid.
        assert table is not None
        return score + table[head, (query - key).abs()]

    mixed: Tensor = _kernel()(
        q,
        k,
        v,
        score_mod=None if table is None else biased,
        block_mask=seen.kernel(q.device),
        enable_gqa=q.shape[1] != k.shape[1],
        kernel_options=OPTIONS,
    )
    return mixed


@functools.cache
def _kernel() -> Callable[..., Any]:
    from torch.nn.attention import flex_attention as flex

    # Not as an option of torch.compile, which torch 2.11 does not have.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, RECOMPILATIONS)
    # Without fullgraph, one compilation too many would silently compute all logits at once.
    return torch.compile(flex.flex_attention, fullgraph=True)


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)  # an evaluation may make what a later training uses
def causal_blocks(length: int, device: torch.device, window: int | None = None) -> Any:
    """The BlockMask of a causal mask over `length` tokens, with a `window` if given.

    `create_block_mask` would first make the mask of all pairs of tokens; this is its closed form.
    """
    from torch.nn.attention.flex_attention import BlockMask

    count = -(-length // BLOCK)
    if window is not None:
        part, full = _near(count, device, window)
        return BlockMask.from_kv_blocks(
            *_ordered(part[None]),
            *_ordered(full[None]),
            BLOCK_SIZE=BLOCK,
            mask_mod=_within(window),
            seq_lengths=(length, length),
        )
    row = torch.arange(count, dtype=torch.int32, device=device)
    # Query block i attends to a part of key block i, and to all of the i key blocks before it.
    return BlockMask.from_kv_blocks(
        kv_num_blocks=torch.ones_like(row)[None, None],
        kv_indices=row[:, None].repeat(1, count)[None, None],
        full_kv_num_blocks=row[None, None],
        full_kv_indices=row.repeat(count, 1)[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=_not_later,
        seq_lengths=(length, length),
    )


@no_compile
def document_blocks(numbers: Tensor, window: int | None = None) -> Any:
    """The BlockMask of a causal mask within documents with these numbers, (batch, length), and
    within a `window` if given.

    A block of queries reads a block of keys if the ranges of their numbers meet. Where the numbers
    of one document are equal and its tokens consecutive, these are the blocks that it fills.
    """
    from torch.nn.attention.flex_attention import BlockMask

    length = numbers.shape[1]
    count = -(-length // BLOCK)
    # The last document fills up the last block, whose missing tokens nothing reads.
    filled = torch.cat((numbers, numbers[:, -1:].expand(-1, count * BLOCK - length)), dim=1)
    low, high = filled.unflatten(1, (count, BLOCK)).aminmax(dim=2)
    meet = (low[:, :, None] <= high[:, None, :]) & (low[:, None, :] <= high[:, :, None])
    one = (low == high)[:, :, None] & (low == high)[:, None, :]
    near_part, near_full = _near(count, numbers.device, window or count * BLOCK)
    full = meet & one & near_full
    part = meet & (near_part | near_full) & ~full
    near = _not_later if window is None else _within(window)

    def within(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return near(batch, head, query, key) & (numbers[batch, query] == numbers[batch, key])

    return BlockMask.from_kv_blocks(
        *_ordered(part),
        *_ordered(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=within,
        seq_lengths=(length, length),
    )


def _near(count: int, device: torch.device, window: int) -> tuple[Tensor, Tensor]:
    """Which of `count` blocks of keys each block of queries sees in part, and which in full."""
    block = torch.arange(count, device=device)
    behind = (block[:, None] - block[None, :]) * BLOCK
    full = (behind > 0) & (behind + BLOCK <= window)
    return (behind >= 0) & (behind - BLOCK + 1 < window) & ~full, full


def _within(window: int) -> Callable[..., Tensor]:
    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < window)

    return near


def _ordered(wanted: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries wants (batch, 1, blocks), and which: their
    places (batch, 1, blocks, blocks), those first."""
    places = wanted.int().argsort(dim=-1, descending=True, stable=True)
    return wanted.sum(-1).int()[:, None], places.int()[:, None]


def _not_later(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
