"""Learned absolute positions: a vector for each position, added to the token embeddings.

Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019), as released.
With a random offset, Huang et al., "A Formal Framework for Understanding Length Generalization in
Transformers", arXiv 2410.02140: training then reaches every row of a table that is longer than its
sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Embedding, Named, Shape, Tensors, generator

if TYPE_CHECKING:
    from torch import Tensor

INITIAL_DEVIATION = 0.02
"""The standard deviation of the initial table, GPT-2's for all of its matrices."""


@dataclass(frozen=True, kw_only=True)
class Learned(Embedding, name="learned", source="Radford et al., GPT-2 (2019)"):
    """Token n gets row n of a learned table, whose rows are as wide as the hidden state.

    With `random_offset`, training adds an offset to the positions of each sequence, which is drawn
    uniformly from those that leave its last token in the table. Evaluation starts at position 0.
    """

    place: ClassVar[str] = "tokens"

    decays: ClassVar[bool] = True

    num_positions: (
        Annotated[
            int,
            Interval(ge=1, le=2**24),
            Doc("The number of positions, so of rows (default: the training length)."),
        ]
        | None
    ) = None
    random_offset: Annotated[
        bool, Doc("Whether the positions of a training sequence start at a random one.")
    ] = False

    shift_invariant = False  # positions are absolute

    def longest_sequence(self, shape: Shape) -> int:
        return self.num_positions or shape.train_length

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        rows = self.longest_sequence(shape)
        if rows < shape.train_length:
            yield f"num_positions {rows} is less than the training length {shape.train_length}"
        elif self.random_offset and rows == shape.train_length:
            yield (
                f"random_offset: num_positions {rows} is the training length, which leaves no"
                " position to start from but 0"
            )

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"by_position": (self.longest_sequence(shape), shape.width)}

    def tensors(self, shape: Shape) -> Tensors:
        """The initial table, drawn from Normal(0, 0.02)."""
        import torch

        size = (self.longest_sequence(shape), shape.width)
        table = torch.empty(size, dtype=torch.float32, device="cpu")
        table.normal_(0.0, INITIAL_DEVIATION, generator=generator("learned", shape))
        return Tensors(learned={"by_position": table})

    def training_positions(
        self, shape: Shape, lengths: Tensor, width: int, *, first: int, rows: int
    ) -> Tensor | None:
        """Positions with an offset for each row, uniform in 0 … num_positions − its length.

        Padding past the end of the table has the last position.
        """
        import torch

        if not self.random_offset:
            return None
        start = self.positions(shape, width, offset=0, device=None)
        spare = self.longest_sequence(shape) - lengths
        # On the CPU, so that every device gets the same offsets.
        drawn = torch.rand(rows, dtype=torch.float64, device="cpu")[first : first + len(lengths)]
        offsets = (drawn * (spare + 1)).long().clamp(max=spare)
        return (offsets[:, None] + start).clamp(max=self.longest_sequence(shape) - 1)

    def embed(self, shape: Shape, tensors: Named, hidden: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of the positions, and return hidden's dtype.

        Raises IndexError on a CPU for a position that the table does not have.
        """
        import torch

        rows = torch.nn.functional.embedding(positions, tensors["by_position"])
        return (hidden + rows).to(hidden.dtype)
