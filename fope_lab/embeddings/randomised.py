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

    @property
    def keys_cacheable(self) -> bool:
        """False, because a longer sequence draws new positions for all of its tokens."""
        return False

    def longest_sequence(self, shape: Shape) -> int:
        """The length in tokens of the longest sequence that has positions: max_length."""
        return self.max_length or DEFAULT_REACH * shape.train_length

    def problems(self, shape: Shape) -> Iterator[str]:
        """Yield also: too few positions for a training sequence, and dynamic transforms."""
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
        that every device gets the same. Raises ValueError for more than max_length tokens.
        """
        import torch

        tokens, longest = offset + length, self.longest_sequence(shape)
        if tokens > longest:
            raise ValueError(
                f"a sequence of {tokens} tokens is longer than max_length {longest}, the number of"
                " positions that randomised positions are drawn from"
            )
        drawn = torch.randperm(longest, device="cpu")[:tokens].sort().values
        return drawn[offset:].to(device)
