"""Randomised positions: a short sequence gets a random, sorted subset of a long one's positions.

Ruoss et al., "Randomized Positional Encodings Boost Length Generalization of Transformers",
arXiv 2305.16843, with RoPE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.rotary import Rotary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEFAULT_REACH = 16
"""The default of max_length, as a multiple of the training length."""


@dataclass(frozen=True, kw_only=True)
class Randomised(Rotary, name="randomised", source="Ruoss et al., arXiv 2305.16843, §3"):
    """RoPE at sorted positions that are drawn without replacement from 0 … max_length − 1.

    Queries and keys have the same positions. Each forward pass draws new ones, also in evaluation.
    """

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

    def longest_sequence(self, shape: Shape) -> int:
        return self.max_length or DEFAULT_REACH * shape.train_length

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if self.max_length is not None and self.max_length < shape.train_length:
            yield (
                f"max_length {self.max_length} is less than the training length"
                f" {shape.train_length}: there are not enough positions to draw"
            )
        for transform in self.transforms:
            if transform.dynamic:
                yield (
                    f"{transform.name} changes frequencies with the length of the sequence, which"
                    " randomised positions hide"
                )

    def positions(
        self, shape: Shape, length: int, *, offset: int, device: torch.device | None
    ) -> Tensor:
        """The last `length` of offset + length random positions, in ascending order.

        torch's global generator draws them, which trainers seed and checkpoint, and on the CPU, so
        that every device gets the same.
        """
        import torch

        super().positions(shape, length, offset=offset, device=device)  # checks the length
        drawn = torch.randperm(self.longest_sequence(shape), device="cpu")[: offset + length]
        return drawn.sort().values[offset:].to(device)
