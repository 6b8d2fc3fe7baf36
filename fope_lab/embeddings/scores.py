"""What an embedding tells attention: the `Scores` of queries and keys, at the `Places` of tokens.

`attend` (fope_lab/model/scores.py) computes attention from them by the quickest way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from fope_lab.embeddings.base import Embedding, Shape

CPU_PAIRS, PAIRS = 2**14, 2**17
"""The largest number of pairs of tokens whose bias is computed at once, on a CPU and elsewhere. A
network such as FIRE's has hidden layers that are several times as large as the bias, and keeps some
for the gradient. They should fit the caches of a CPU, and fill other devices."""

Logits = Callable[["Scores", slice, slice], Tensor]
"""Returns the logits (batch, num_heads, queries, keys) of some queries, by their places among all
queries, and of some keys."""
Weights = Callable[["Scores", Tensor, Tensor, slice], Tensor]
"""Returns weights from logits (batch, num_heads, queries, keys), a mask of what is hidden, which
broadcasts to them, and the queries' places."""
CosSin = tuple[Tensor, Tensor]
"""cos and (−sin, sin), each over all dimensions of a head."""


class Places(NamedTuple):
    """Where tokens are, with what an embedding computes of that once for all layers that share it.

    `positions`, (tokens,) or (batch, tokens), are those of all tokens, of which the last `new` are
    read now and a cache has the others. `steps` says that a bias of distance alone can be read from
    a table: positions grow by one. `cos_sin` rotates the new tokens, and `key_cos_sin` all tokens
    where a cache keeps keys before rotation; both are None if nothing rotates.
    """

    positions: Tensor
    new: int
    steps: bool = False
    cos_sin: CosSin | None = None
    key_cos_sin: CosSin | None = None

    def last(self, count: int) -> Places:
        """The last tokens alone, which are all that a cache with a window has."""
        if count == self.positions.shape[-1]:
            return self
        keys = self.key_cos_sin
        if keys is not None:
            keys = keys[0][..., -count:, :], keys[1][..., -count:, :]
        return self._replace(positions=self.positions[..., -count:], key_cos_sin=keys)


@dataclass(frozen=True)
class Scores:
    """Attention logits q·kᵀ/√head_dim + bias, and what they are computed from.

    `q` is (batch, num_heads, queries, head_dim), `k` (batch, num_kv_heads, keys, head_dim), both
    rotated. At most one bias is given: `table`, float32 (num_heads, keys), by the distance of a key
    before its query, or `rows`, by the positions of each pair of tokens, or `key_bias`, float32
    (batch, num_heads, keys): a bias c(query) − c(key) needs only −c(key), since softmax does not
    see what is the same for all keys of a query.

    The others are for methods that no fused kernel knows, which are computed a block of queries at
    a time (fope_lab/model/exact.py). `sink` (num_heads,) is the logit of one more key of every
    query, which has no value. `logits` takes the place of q·kᵀ/√head_dim, `weights` of softmax.
    With a `cap` c, logits z become c·tanh(z/c).
    Both get these scores, and read from them alone what gets a gradient: beside `q` and `k`, what
    is in `of`. The backward pass gives them again, as other tensors.
    """

    q: Tensor
    k: Tensor
    table: Tensor | None = None
    rows: PairBias | None = None
    key_bias: Tensor | None = None
    sink: Tensor | None = None
    logits: Logits | None = None
    weights: Weights | None = None
    cap: float | None = None
    of: Mapping[str, Tensor] = field(default_factory=dict)


class PairBias:
    """The bias that an embedding computes from the positions (…, length) of each pair of tokens.

    `learned` are the tensors of the bias that get gradients.
    """

    def __init__(
        self, definition: Embedding, shape: Shape, tensors: Mapping[str, Tensor], positions: Tensor
    ) -> None:
        self._definition, self._shape, self._positions = definition, shape, positions
        learned = {n: each for n, each in tensors.items() if isinstance(each, nn.Parameter)}
        self._fixed = {name: each for name, each in tensors.items() if name not in learned}
        self._names = tuple(learned)
        self.learned: Sequence[Tensor] = tuple(learned.values())

    def with_learned(self, learned: Sequence[Tensor]) -> PairBias:
        """The same bias of other learned tensors."""
        same = copy.copy(self)
        same.learned = tuple(learned)
        return same

    def rows(self, learned: Sequence[Tensor], queries: slice, keys: slice) -> Tensor:
        """The bias (…, num_heads, queries, keys) of these tokens."""
        parts = self._parts(queries, keys)
        return torch.cat([self._bias(learned, part, keys) for part in parts], dim=-2)

    def add_gradients(
        self,
        totals: Sequence[Tensor],
        learned: Sequence[Tensor],
        queries: slice,
        keys: slice,
        gradient: Tensor,
    ) -> None:
        """Add to `totals` the gradients of `learned`, by automatic differentiation.

        `gradient` (batch, num_heads, queries, keys) is that of `rows`.
        """
        leaves = [tensor.detach().requires_grad_() for tensor in learned]
        for part in self._parts(queries, keys):
            with torch.enable_grad():
                bias = self._bias(leaves, part, keys)
            if not bias.requires_grad:  # the learned tensors belong to a rotation
                return
            own = slice(part.start - queries.start, part.stop - queries.start)
            part_of = gradient[..., own, :].sum_to_size(bias.shape)
            of = part_of.to(bias.dtype)
            grads = torch.autograd.grad(bias, leaves, of, materialize_grads=True)
            for total, grad in zip(totals, grads, strict=True):
                total.add_(grad)

    def _bias(self, learned: Sequence[Tensor], queries: slice, keys: slice) -> Tensor:
        tensors = {**self._fixed, **dict(zip(self._names, learned, strict=True))}
        query, key = self._positions[..., queries], self._positions[..., keys]
        return self._definition.bias(self._shape, tensors, query, key)

    def _parts(self, queries: slice, keys: slice) -> Iterator[slice]:
        """Divide queries into parts small enough for so many keys."""
        pairs = CPU_PAIRS if self._positions.device.type == "cpu" else PAIRS
        step, end = max(pairs // (keys.stop - keys.start), 1), queries.stop
        return (slice(first, min(first + step, end)) for first in range(queries.start, end, step))


def wide(x: Tensor) -> Tensor:
    """x in float32 or a wider type."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def in_halves(cos: Tensor, sin: Tensor) -> CosSin:
    """The cosines and sines (…, head_dim/2) of pairs, for both halves of a head."""
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotated(x: Tensor, cos_sin: CosSin) -> Tensor:
    """Queries or keys x (batch, heads, length, head_dim), rotated: x·cos + (−x₂, x₁)·sin on their
    halves, in x's dtype.

    `cos_sin` are (…, heads, tokens, head_dim). Fewer queries belong to the last tokens, and query
    heads that share a key head to the same angles.

    Two passes over whole heads are faster than four over halves, and so are heads after length, as
    the projections leave them in memory: together a tenth of a small model's attention on a CPU.
    """
    width = cos_sin[0].shape[-1]
    if width < x.shape[-1]:  # the rest of a head does not rotate
        return torch.cat((rotated(x[..., :width], cos_sin), x[..., width:]), dim=-1)
    cos, signed_sin = _for_heads(cos_sin, *x.shape[1:3])
    x, cos, signed_sin = (tensor.transpose(-3, -2) for tensor in (x, cos, signed_sin))
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    turned = torch.addcmul(x * cos, swapped, signed_sin)
    return turned.transpose(-3, -2).to(x.dtype)


def _for_heads(cos_sin: CosSin, heads: int, length: int) -> CosSin:
    """Those of the last `length` positions, repeated for query heads that share a key head."""
    cos, signed_sin = cos_sin
    if length < cos.shape[-2]:
        cos, signed_sin = cos[..., -length:, :], signed_sin[..., -length:, :]
    if cos.shape[-3] in (1, heads):
        return cos, signed_sin
    groups = heads // cos.shape[-3]
    return cos.repeat_interleave(groups, dim=-3), signed_sin.repeat_interleave(groups, dim=-3)
