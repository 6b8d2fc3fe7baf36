"""What embeddings come to at a shape: pairs that rotate, frequencies, learned parameters.

Torch-free: all of it follows from the options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import Embedding, Shape, check_definition
from fope_lab.embeddings.describe import Description
from fope_lab.embeddings.errors import EmbeddingError

FAR = 10**12
"""A length beyond every original length: what follows the length has changed there."""


@dataclass(frozen=True)
class PairRotation:
    """How a pair of dimensions turns: its frequency in radians per token, 0 if it does not."""

    pair: int
    frequency: float
    train_length: int

    @property
    def wavelength(self) -> float | None:
        """Tokens for a full turn; None where it does not turn."""
        return 2 * math.pi / self.frequency if self.frequency else None

    @property
    def cycles(self) -> float:
        """Full turns in the training length."""
        return self.frequency * self.train_length / (2 * math.pi)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What an embedding comes to at a shape.

    `learned` are the sizes of one layer's learned tensors. `turns` are the pairs of an embedding
    that rotates, by the length of the sequence in tokens: at the training length, and where
    frequencies follow the length (`follows_length`), at the longer one that was asked for.
    """

    shape: Shape
    per_layer: bool
    learned: Mapping[str, tuple[int, ...]]
    attention_factor: float
    facts: Mapping[str, float]
    follows_length: bool
    turns: Mapping[int, tuple[PairRotation, ...]]

    @property
    def parameters(self) -> int:
        """Learned numbers of one layer, or of the one module that all layers share."""
        return sum(math.prod(size) for size in self.learned.values())

    @property
    def rotating(self) -> int | None:
        """How many of the head_dim/2 pairs rotate; None for an embedding that is no rotation."""
        if not self.turns:
            return None
        return sum(turn.frequency != 0 for turn in self.turns[self.shape.train_length])


def inspect_embedding(definition: Embedding, shape: Shape, longer: int | None = None) -> Inspection:
    """What `definition` comes to at `shape`, and in sequences of `longer` tokens.

    Raises EmbeddingError where it does not fit the shape.
    """
    check_definition(definition, shape)
    length = shape.train_length
    trained, far = (_turns(definition, shape, tokens) for tokens in (length, FAR))
    follows = trained != far
    turns = {length: trained} if trained else {}
    if follows and longer is not None:
        turns[longer] = _turns(definition, shape, longer)
    return Inspection(
        shape=shape,
        per_layer=definition.per_layer,
        learned=definition.learned_sizes(shape),
        attention_factor=definition.attention_factor(shape),
        facts=definition.facts(shape),
        follows_length=follows,
        turns=turns,
    )


def _turns(definition: Embedding, shape: Shape, length: int) -> tuple[PairRotation, ...]:
    """Every pair, in a sequence of `length` tokens; none of what is no rotation."""
    frequencies = enumerate(definition.pair_frequencies(shape, length))
    return tuple(PairRotation(pair, omega, shape.train_length) for pair, omega in frequencies)


@dataclass(frozen=True, kw_only=True)
class InspectionRow:
    """An embedding and what it comes to, or why that is not known."""

    description: Description
    inspection: Inspection | None
    problems: tuple[Problem, ...] = ()


def inspect_all(
    descriptions: Iterable[Description],
    shape: Shape,
    options: Mapping[str, Any],
    longer: int | None = None,
) -> list[InspectionRow]:
    """What each embedding comes to at a shape, with `options` where they are left open.

    One that needs another option, or does not fit the shape, says so in its row. Raises
    EmbeddingError for a wrong option, and for a shape that fits no rotation.
    """
    rows = [_row(description, shape, options, longer) for description in descriptions]
    rotations = [row for row in rows if row.description.parts[0].kind.rotates]
    if rotations and not any(row.inspection for row in rotations):
        raise EmbeddingError(dict.fromkeys(p for row in rotations for p in row.problems))
    return rows


def _row(
    description: Description, shape: Shape, options: Mapping[str, Any], longer: int | None
) -> InspectionRow:
    missing = [option for option in description.open if option not in options]
    problems = tuple(
        Problem(("embedding", option), f"is missing: {description.name} needs {option}")
        for option in missing
    )
    if problems:
        return InspectionRow(description=description, inspection=None, problems=problems)
    definition = description.definition(options)
    try:
        return InspectionRow(
            description=description, inspection=inspect_embedding(definition, shape, longer)
        )
    except EmbeddingError as error:
        return InspectionRow(description=description, inspection=None, problems=error.problems)
