"""The tokens that each query sees: the causal mask, windows and packed documents, in one place.

`Seen` says it to each way to compute attention: PyTorch's kernel (`sdpa`), blocks of queries
(`blocks`, `hide`) and FlexAttention (`kernel`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import flex
from fope_lab.model.no_compile import no_compile


class Documents(NamedTuple):
    """The documents of packed sequences: a token attends only to tokens of its own document.

    `numbers` are integers (batch, length), one for each document. All layers share the rest.
    `first` (length,) is the first token, in any sequence of the batch, of the documents that have a
    token in this place; without it, blocks read all tokens before them. `kernels` has the
    BlockMasks for FlexAttention on CUDA, by window, which layers make as they need them.
    """

    numbers: Tensor
    first: Tensor | None = None
    kernels: dict[int | None, Any] | None = None

    @classmethod
    def of(cls, numbers: Tensor, embedding: PositionEmbedding) -> Documents:
        """The documents as attention with this embedding needs them."""
        if embedding.biases:
            return cls(numbers)
        if numbers.device.type == "cuda":  # blocks are for dtypes that the kernel can't multiply
            return cls(numbers, kernels={})
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


class Block(NamedTuple):
    """Queries of a block, as places among all queries, and the keys that it reads."""

    queries: slice
    keys: slice

    @property
    def tokens(self) -> slice:
        """The tokens of the queries."""
        count = self.queries.stop - self.queries.start
        return slice(self.keys.stop - count, self.keys.stop)


class Seen(NamedTuple):
    """Which of `keys` tokens the `queries` of the last of them see: their own and those before it.

    With a `window` W, a query sees its own token and the W − 1 before it; with `documents`, only
    those of its own document.
    """

    queries: int
    keys: int
    documents: Documents | None = None
    window: int | None = None

    @classmethod
    def of(
        cls, queries: int, keys: int, documents: Documents | None = None, window: int | None = None
    ) -> Seen:
        """Without a window that is as long as all tokens."""
        return cls(queries, keys, documents, None if window is None or window >= keys else window)

    @property
    def is_plain(self) -> bool:
        """Whether the mask is the causal one alone."""
        return self.documents is None and self.window is None

    def counts(self, device: torch.device) -> Tensor:
        """How many tokens each query sees, its own included: (batch or 1, queries)."""
        index = torch.arange(self.keys, device=device)
        first = torch.zeros_like(index)  # that a query may see
        if self.window is not None:
            first = (index - self.window + 1).clamp(min=0)
        found = (index - first + 1)[None]
        if self.documents is not None:  # whose tokens need not be consecutive
            numbers = self.documents.numbers.long()
            begins = (numbers - numbers.min()) * self.keys
            order = (begins + index).sort(dim=1).values
            own, earliest = (torch.searchsorted(order, begins + at) for at in (index, first))
            found = own - earliest + 1
        return found[:, self.keys - self.queries :]

    def sdpa(self, device: torch.device) -> dict[str, Any]:
        """What tells PyTorch's `scaled_dot_product_attention` a plain causal mask."""
        if self.queries == self.keys:
            return {"is_causal": True}
        if self.queries == 1:  # it attends to all keys
            return {}
        # With `is_causal` the queries would be those of the first tokens.
        seen = torch.ones(self.queries, self.keys, dtype=torch.bool, device=device)
        return {"attn_mask": seen.tril(self.keys - self.queries)}

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of `size` queries, with the keys from the first that any of them sees."""
        starts = None
        if self.documents is not None and self.documents.first is not None:
            starts = self.documents.first.tolist()
        for start in range(0, self.queries, size):
            stop = min(start + size, self.queries)
            own = slice(self.keys - self.queries + start, self.keys - self.queries + stop)
            first = 0 if starts is None else min(starts[own])
            if self.window is not None:
                first = max(first, own.start - self.window + 1)
            yield Block(slice(start, stop), slice(first, own.stop))

    def hide(self, logits: Tensor, block: Block) -> None:
        """Set the logits (batch, heads, queries, keys) of what queries don't see to −∞."""
        count = block.queries.stop - block.queries.start
        square = torch.ones(count, count, dtype=torch.bool, device=logits.device)
        logits[..., -count:].masked_fill_(square.triu(1), -math.inf)
        if self.window is not None:
            # Query r of the block sees keys from start + r − window + 1 on.
            behind = block.tokens.start - self.window - block.keys.start
            if behind + count > 0:
                far = torch.ones(count, behind + count, dtype=torch.bool, device=logits.device)
                logits[..., : behind + count].masked_fill_(far.tril(behind), -math.inf)
        if self.documents is not None:
            numbers = self.documents.numbers
            own = numbers[:, block.tokens, None]
            logits.masked_fill_((own != numbers[:, None, block.keys])[:, None], -math.inf)

    def kernel(self, device: torch.device) -> Any:
        """The BlockMask for FlexAttention, of as many queries as keys."""
        if self.documents is None:
            return flex.causal_blocks(self.keys, device, self.window)
        numbers, _, kernels = self.documents
        if kernels is None:
            return flex.document_blocks(numbers, self.window)
        if self.window not in kernels:
            kernels[self.window] = flex.document_blocks(numbers, self.window)
        return kernels[self.window]
