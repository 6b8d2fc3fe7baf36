"""Rotations by angles that follow from hidden states: Selective RoPE and RePo."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Named, Shape, Tensors, generator
from fope_lab.embeddings.rotary import Rotary, as_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class HiddenAngles(Rotary):
    """A rotation of each head's pairs by angles of its own; a cache keeps what they follow from."""

    place: ClassVar[str] = "hidden"
    rotates: ClassVar[bool] = False  # by positions, which nothing here depends on
    shared_layers: ClassVar[bool] = False
    decays: ClassVar[bool] = True
    keys_cacheable = True
    shift_invariant = True

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        """None, as nothing turns by position alone."""
        return ()

    @abstractmethod
    def turns(self, tensors: Named, x: Tensor) -> Tensor:
        """What the angles follow from, (batch, num_kv_heads, tokens, …), of hidden states in
        float32 or wider."""

    @abstractmethod
    def angles(self, turns: Tensor, frequencies: Tensor) -> Tensor:
        """The angles (batch, num_kv_heads, tokens, head_dim/2) of all tokens."""

    @abstractmethod
    def inner(self, shape: Shape) -> int:
        """How many numbers of a token `turns` keeps for the backward pass."""

    def kept(self, shape: Shape, number: int) -> int:
        """Angles, their cosines and sines for all dimensions of queries and of keys, and what they
        follow from."""
        of_heads = (8 + 2 * number) * shape.num_heads + (10 + 2 * number) * shape.num_kv_heads
        hidden = self.inner(shape) + (shape.width if number < 4 else 0)
        return of_heads * shape.head_dim + 4 * hidden

    def products(self, shape: Shape) -> tuple[int, int]:
        return sum(map(math.prod, self.learned_sizes(shape).values())), 0

    def tensors(self, shape: Shape) -> Tensors:
        """RoPE's frequencies `omegas`, and matrices from Normal(0, 0.02)."""
        import torch

        rng = generator(self.name, shape)
        learned = {
            name: torch.empty(size).normal_(0.0, 0.02, generator=rng)
            for name, size in self.learned_sizes(shape).items()
        }
        constants = {"omegas": as_tensor(self.ladder(shape).frequencies)}
        return Tensors(constants=constants, learned=learned)

    def streams(
        self, shape: Shape, tensors: Named, hidden: Tensor, q: Tensor, k: Tensor, at: Places
    ) -> Named:
        import torch

        from fope_lab.embeddings.scores import wide

        with torch.autocast(hidden.device.type, enabled=False):
            return {"k": k, "turns": self.turns(tensors, wide(hidden))}

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        import torch

        from fope_lab.embeddings.scores import Scores, in_halves, rotated

        with torch.autocast(q.device.type, enabled=False):
            angles = self.angles(kept["turns"], tensors["omegas"])
            turn = in_halves(angles.cos(), angles.sin())
        return Scores(rotated(q, turn), rotated(kept["k"], turn))


@dataclass(frozen=True, kw_only=True)
class SelectiveRope(HiddenAngles, name="selective-rope", source="arXiv 2511.17388"):
    """Pair i turns by ω_i · Σ φ_i(x) over the tokens up to its own, where φ is a product of two
    matrices with the hidden state of length 1. The released code adds a convolution and a gate."""

    rank: Annotated[int, Interval(ge=1), Doc("The rank of the product of matrices.")] = 16

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        angles = shape.num_kv_heads * self.width(shape) // 2
        return {"narrow": (self.rank, shape.width), "turn": (angles, self.rank)}

    def inner(self, shape: Shape) -> int:
        return shape.width + self.rank

    def turns(self, tensors: Named, x: Tensor) -> Tensor:
        import torch.nn.functional as F  # noqa: N812

        pairs = tensors["omegas"].shape[0]
        narrow = F.linear(F.normalize(x, dim=-1), tensors["narrow"].to(x))
        return F.linear(narrow, tensors["turn"].to(x)).unflatten(-1, (-1, pairs)).transpose(1, 2)

    def angles(self, turns: Tensor, frequencies: Tensor) -> Tensor:
        return turns.cumsum(dim=2) * frequencies.to(turns)


@dataclass(frozen=True, kw_only=True)
class RePo(HiddenAngles, name="repo", source="Li et al. (RePo), arXiv 2512.14391, §3"):
    """RoPE at real positions z = (swish(x·W_g) ⊙ x·W_c)·W_z, one for each key head."""

    rank: Annotated[
        int | None, Interval(ge=1), Doc("The width of W_g and W_c (default: an eighth of x's).")
    ] = None

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        rank = self._rank(shape)
        matrix = (rank, shape.width)
        return {"gate": matrix, "content": matrix, "place": (shape.num_kv_heads, rank)}

    def inner(self, shape: Shape) -> int:
        return 4 * self._rank(shape)

    def _rank(self, shape: Shape) -> int:
        return self.rank or max(1, shape.width // 8)

    def turns(self, tensors: Named, x: Tensor) -> Tensor:
        import torch.nn.functional as F  # noqa: N812

        own = {name: each.to(x) for name, each in tensors.items()}
        inner = F.silu(F.linear(x, own["gate"])) * F.linear(x, own["content"])
        return F.linear(inner, own["place"]).mT[..., None]

    def angles(self, turns: Tensor, frequencies: Tensor) -> Tensor:
        return turns * frequencies.to(turns)
