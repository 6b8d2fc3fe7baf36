"""The frequencies, rotating pairs and learned parameters of embeddings at a shape.

All of it follows from the options, without torch.
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
"""A length in tokens beyond every original length, where dynamic frequencies have changed."""


@dataclass(frozen=True)
class PairRotation:
    """The rotation of one pair of dimensions: `frequency` is in radians per token, or 0."""

    pair: int
    frequency: float
    train_length: int

    @property
    def wavelength(self) -> float | None:
        """The tokens of a full cycle; None if the pair does not rotate."""
        return 2 * math.pi / self.frequency if self.frequency else None

    @property
    def cycles(self) -> float:
        """The number of cycles in the training length."""
        return self.frequency * self.train_length / (2 * math.pi)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The numbers of an embedding at a shape.

    `learned` are the sizes of the learned tensors of one layer. `turns` are the rotations of the
    pairs, by the length of the sequence in tokens: at the training length, and, if frequencies
    depend on the length (`follows_length`), at the longer length that was requested.
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
        """The learned parameters of one layer, or of the one module that all layers share."""
        return sum(math.prod(size) for size in self.learned.values())

    @property
    def rotating(self) -> int | None:
        """How many of the head_dim/2 pairs rotate; None for an embedding without rotation."""
        if not self.turns:
            return None
        return sum(turn.frequency != 0 for turn in self.turns[self.shape.train_length])


def inspect_embedding(definition: Embedding, shape: Shape, longer: int | None = None) -> Inspection:
    """The numbers of `definition` at `shape`, and in sequences of `longer` tokens.

    Raises EmbeddingError if the definition does not fit the shape.
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
    """The rotation of every pair in a sequence of `length` tokens; empty without rotation."""
    frequencies = enumerate(definition.pair_frequencies(shape, length))
    return tuple(PairRotation(pair, omega, shape.train_length) for pair, omega in frequencies)


@dataclass(frozen=True, kw_only=True)
class InspectionRow:
    """An embedding and its inspection, or the problems that prevent one."""

    description: Description
    inspection: Inspection | None
    problems: tuple[Problem, ...] = ()


def inspect_all(
    descriptions: Iterable[Description],
    shape: Shape,
    options: Mapping[str, Any],
    longer: int | None = None,
) -> list[InspectionRow]:
    """Inspect each embedding at a shape, with `options` for the options that are still open.

    The row of an embedding that needs another option, or that does not fit the shape, holds the
    problems. Raises EmbeddingError for a wrong option, and for a shape that fits no rotation.
    """
    rows = [_row(description, shape, options, longer) for description in descriptions]
    rotations = [row for row in rows if row.description.parts[0].kind.rotates]
    if rotations and not any(row.inspection for row in rotations):
        raise EmbeddingError(dict.fromkeys(p for row in rotations for p in row.problems))
    return rows


def _row(
    description: Description, shape: Shape, options: Mapping[str, Any], longer: int | None
) -> InspectionRow:
    problems = tuple(
        Problem(("embedding", option), f"is missing: {description.name} needs {option}")
        for option in description.open
        if option not in options
    )
    inspection = None
    if not problems:
        definition = description.definition(options)
        try:
            inspection = inspect_embedding(definition, shape, longer)
        except EmbeddingError as error:
            problems = error.problems
    return InspectionRow(description=description, inspection=inspection, problems=problems)
