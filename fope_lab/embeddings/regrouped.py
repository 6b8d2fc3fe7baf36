"""RoPE whose distances never exceed those of training, without training: far ones are grouped
(Self-Extend), cut off (ReRoPE) or counted within chunks (DCA).

A pair of tokens has the logit of the positions that its range of distances gives the two. Nothing
else changes, so that these take the place of `rope` in a model that is trained already.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Named, Shape
from fope_lab.embeddings.rotary import Rotary

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import CosSin, Places, Scores

Window = Annotated[
    int,
    Interval(ge=1),
    Doc("The tokens before a query, itself included, at their true distance."),
]


class Range(NamedTuple):
    """A range of distances: the positions that queries and keys have in it, and for which pairs of
    true positions, (…, queries, 1) and (…, 1, keys), it is taken; None for all that are left."""

    queries: Tensor
    keys: Tensor
    taken: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Regrouped(Rotary):
    """RoPE with other positions for each range of distances."""

    place: ClassVar[str] = "positions"

    shift_invariant = False
    keys_cacheable = True  # before rotation: see `streams`
    mechanism = Rotary.name

    count: ClassVar[int] = 2
    """How many ranges there are."""

    def products(self, shape: Shape) -> tuple[int, int]:
        return 0, (self.count - 1) * shape.head_dim

    @abstractmethod
    def ranges(self, shape: Shape, query: Tensor, key: Tensor) -> Iterator[Range]:
        """Yield the ranges, of which the first that takes a pair counts. Positions are (…, queries)
        and (…, keys)."""

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if any(transform.dynamic for transform in self.transforms):
            yield f"{self.name} has no frequencies that change with the length of the sequence"

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        return {"k": k}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        from fope_lab.embeddings.scores import Scores, rotated, wide

        positions, groups = at.positions, shape.num_heads // shape.num_kv_heads
        offset = positions.shape[-1] - q.shape[2]

        def turn(positions: Tensor) -> CosSin:
            return self.turn(shape, tensors, positions)

        def logits(scores: Scores, queries: slice, keys: slice) -> Tensor:
            own = positions[..., offset + queries.start : offset + queries.stop]
            x, y = wide(scores.q[:, :, queries]), wide(scores.k[:, :, keys])
            y = y.repeat_interleave(groups, dim=1)
            found: Tensor | None = None
            # The last range first: those before it take their pairs from it.
            for each in reversed(list(self.ranges(shape, own, positions[..., keys]))):
                part = rotated(x, turn(each.queries)) @ rotated(y, turn(each.keys)).mT
                taken = each.taken
                if taken is not None and taken.dim() > 2:
                    taken = taken.unsqueeze(1)
                found = part if found is None or taken is None else part.where(taken, found)
            assert found is not None
            return found / math.sqrt(shape.head_dim)

        return Scores(q, kept["k"], logits=logits)


def _distance(query: Tensor, key: Tensor) -> Tensor:
    return query[..., :, None] - key[..., None, :]


@dataclass(frozen=True, kw_only=True)
class SelfExtend(Regrouped, name="self-extend", source="Jin et al., arXiv 2401.01325, §3.3"):
    """Distances from `window` on are those of groups of tokens, whose positions are divided by
    `group` and rounded down."""

    group: Annotated[int, Interval(ge=2), Doc("The tokens of a group, G.")]
    window: Window

    def ranges(self, shape: Shape, query: Tensor, key: Tensor) -> Iterator[Range]:
        shift = self.window - self.window // self.group
        yield Range(query, key, _distance(query, key) < self.window)
        yield Range(query // self.group + shift, key // self.group, None)


@dataclass(frozen=True, kw_only=True)
class ReRope(Regrouped, name="rerope", source="Su (ReRoPE), 2023, as released"):
    """Every distance from `window` on is `window`."""

    shift_invariant = True

    window: Window

    def ranges(self, shape: Shape, query: Tensor, key: Tensor) -> Iterator[Range]:
        import torch

        yield Range(query, key, _distance(query, key) < self.window)
        yield Range(torch.full_like(query, self.window), torch.zeros_like(key), None)


@dataclass(frozen=True, kw_only=True)
class DualChunk(Regrouped, name="dca", source="An et al. (DCA), arXiv 2402.17463, §3"):
    """Positions are counted within chunks of `chunk` tokens. Keys of the chunk before a query's
    have the true distance for the first tokens of its chunk; all others have the farthest of
    training, as have keys of earlier chunks."""

    count: ClassVar[int] = 3

    chunk: Annotated[
        int | None, Interval(ge=1), Doc("s in tokens (default: ¾ of the training length).")
    ] = None

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if self.chunk is not None and self.chunk >= shape.train_length:
            yield f"chunk {self.chunk} is not shorter than the training length {shape.train_length}"

    def ranges(self, shape: Shape, query: Tensor, key: Tensor) -> Iterator[Range]:
        import torch

        size = self.chunk or max(1, shape.train_length * 3 // 4)
        farthest = shape.train_length - 1
        within, of_key = query % size, key % size
        apart = (query // size)[..., :, None] - (key // size)[..., None, :]
        yield Range(within, of_key, apart == 0)
        yield Range((within + size).clamp(max=farthest), of_key, apart == 1)
        yield Range(torch.full_like(query, farthest), of_key, None)
