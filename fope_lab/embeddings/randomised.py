"""Random positions: a short sequence gets random, sorted positions of a long one.

Ruoss et al., "Randomized Positional Encodings Boost Length Generalization of Transformers",
arXiv 2305.16843, with RoPE; and real numbers in place of whole ones, arXiv 2602.14050.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.alibi import Alibi
from fope_lab.embeddings.base import Embedding, Shape
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.sinusoidal import Sinusoidal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEFAULT_REACH = 16
"""The default of max_length, as a multiple of the training length."""


@dataclass(frozen=True, kw_only=True)
class RandomPositions(Embedding):
    """Sorted random positions below max_length, of queries and keys alike.

    Each forward pass draws new ones, also in evaluation. torch's global generator draws them, which
    trainers seed and checkpoint, and on the CPU, so that every device gets the same.
    """

    place: ClassVar[str] = "positions"

    draws_positions: ClassVar[bool] = True

    max_length: (
        Annotated[
            int,
            Interval(ge=1, le=2**24),
            Doc("The number of positions to draw from (default: 16 times the training length)."),
        ]
        | None
    ) = None

    keys_cacheable = False  # a longer sequence draws new positions for all of its tokens

    @abstractmethod
    def drawn(self, count: int, most: int) -> Tensor:
        """As many positions from 0 on, each below `most`, in any order, on the CPU."""

    def longest_sequence(self, shape: Shape) -> int:
        return self.max_length or DEFAULT_REACH * shape.train_length

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if self.max_length is not None and self.max_length < shape.train_length:
            yield (
                f"max_length {self.max_length} is less than the training length"
                f" {shape.train_length}: there are not enough positions to draw"
            )
        for transform in getattr(self, "transforms", ()):
            if transform.dynamic:
                yield (
                    f"{transform.name} changes frequencies with the length of the sequence, which"
                    " randomised positions hide"
                )

    def positions(
        self, shape: Shape, length: int, *, offset: int, device: torch.device | None
    ) -> Tensor:
        """The last `length` of offset + length random positions, in ascending order."""
        super().positions(shape, length, offset=offset, device=device)  # checks the length
        drawn = self.drawn(offset + length, self.longest_sequence(shape))
        return drawn.sort().values[offset:].to(device)


@dataclass(frozen=True, kw_only=True)
class Randomised(
    RandomPositions, Rotary, name="randomised", source="Ruoss et al., arXiv 2305.16843, §3"
):
    """RoPE at sorted positions that are drawn without replacement from 0 … max_length − 1.

    Queries and keys have the same positions. Each forward pass draws new ones, also in evaluation.
    """

    def drawn(self, count: int, most: int) -> Tensor:
        import torch

        return torch.randperm(most, device="cpu")[:count]


@dataclass(frozen=True, kw_only=True)
class RealPositions(RandomPositions):
    """Real numbers, each drawn from [0, max_length) alone."""

    def drawn(self, count: int, most: int) -> Tensor:
        import torch

        return torch.rand(count, device="cpu") * most


REAL = "arXiv 2602.14050"


@dataclass(frozen=True, kw_only=True)
class RealRope(RealPositions, Rotary, name="random-float-rope", source=REAL):
    """RoPE at sorted real positions that are drawn from [0, max_length)."""


@dataclass(frozen=True, kw_only=True)
class RealAlibi(RealPositions, Alibi, name="random-float-alibi", source=REAL):
    """ALiBi at sorted real positions that are drawn from [0, max_length)."""


@dataclass(frozen=True, kw_only=True)
class RealSinusoidal(RealPositions, Sinusoidal, name="random-float-sinusoidal", source=REAL):
    """Sinusoidal positions that are real, sorted, and drawn from [0, max_length)."""
