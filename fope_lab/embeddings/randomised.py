"""Randomised positions: a short sequence gets the positions of a long one, some of them, in order.

Ruoss et al., "Randomized Positional Encodings Boost Length Generalization of Transformers",
arXiv 2305.16843, with RoPE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.rotary import Rotary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEFAULT_REACH = 16
"""max_length as a multiple of the training length, where it is not given."""


@dataclass(frozen=True, kw_only=True)
class Randomised(Rotary, name="randomised", source="Ruoss et al., arXiv 2305.16843, §3"):
    """RoPE at positions drawn without replacement from 0 … max_length − 1, and sorted.

    Queries and keys have one draw, made again for each forward pass, also at evaluation.
    """

    max_length: (
        Annotated[
            int,
            Interval(ge=1, le=2**24),
            Doc("how many positions to draw from (default: 16 times the training length)"),
        ]
        | None
    ) = None

    @property
    def draws_positions(self) -> bool:
        """Each time."""
        return True

    @property
    def keys_cacheable(self) -> bool:
        """Never: a longer sequence draws new positions for all its tokens."""
        return False

    def longest(self, shape: Shape) -> int | None:
        """Tokens of the longest sequence that it has positions for: max_length."""
        return self.max_length or DEFAULT_REACH * shape.train_length

    def problems(self, shape: Shape) -> Iterator[str]:
        """Also: fewer positions than a training sequence needs, frequencies that need a length."""
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
                    " randomised positions do not tell"
                )

    def positions(
        self, shape: Shape, length: int, *, offset: int, device: torch.device | None
    ) -> Tensor:
        """The last `length` of offset + length positions. Raises ValueError beyond max_length.

        They come from torch's global generator, which trainers seed and checkpoint, on the CPU, so
        that every device gets the same.
        """
        import torch

        tokens, longest = offset + length, self.max_length or DEFAULT_REACH * shape.train_length
        if tokens > longest:
            raise ValueError(
                f"a sequence of {tokens} tokens is longer than max_length {longest}, the number of"
                " positions that randomised positions are drawn from"
            )
        drawn = torch.randperm(longest, device="cpu")[:tokens].sort().values
        return drawn[offset:].to(device)
