"""Attention with a bias of distance as one fused kernel: PyTorch's FlexAttention on CUDA.

Nothing is imported or compiled before a GPU first needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""The queries, and the keys, of a block, which the kernel skips if the mask drops all of it."""

LEAST_HEAD_DIM = 16
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
"""The dtypes that the kernel can multiply."""

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


def flex_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over a token and those before it.

    q is (batch, num_heads, length, head_dim), as is the result; k and v have num_kv_heads. The bias
    of a key d tokens before its query is table[head, d]; `table` is float32 (num_heads, length) and
    gets its gradient.
    """

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # The kernel also reads keys after their query and drops them: the index must be valid.
        return score + table[head, (query - key).abs()]

    mixed: Tensor = _kernel()(
        q,
        k,
        v,
        score_mod=biased,
        block_mask=causal_blocks(q.shape[2], q.device),
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return mixed


@functools.cache
def _kernel() -> Callable[..., Any]:
    from torch.nn.attention import flex_attention as flex

    # Without fullgraph, one compilation too many would silently compute all logits at once.
    return torch.compile(  # type: ignore[call-overload]  # its stubs lack the limit
        flex.flex_attention, fullgraph=True, recompile_limit=RECOMPILATIONS
    )


@functools.lru_cache(maxsize=8)
def causal_blocks(length: int, device: torch.device) -> Any:
    """The BlockMask of a causal mask over `length` tokens, from its closed form.

    `create_block_mask` would first make the mask of all pairs of tokens.
    """
    from torch.nn.attention.flex_attention import BlockMask

    count = -(-length // BLOCK)
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


def _not_later(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
