"""The parts of an embedding, and every option with its default and its meaning. Torch-free.

`describe` reads a preset, a mechanism, a transform, or any description of a sweep file. Required
options may still be open.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.options import Option
from fope_lab.config.problems import FieldPath, Problem, unknown_name
from fope_lab.embeddings.base import (
    EMBEDDING_TYPES,
    Embedding,
    EmbeddingError,
    Shape,
    check_definition,
)
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import TRANSFORMS, Spec, embedding_options, parse_embedding, parts_of

EXAMPLES: Mapping[str, Any] = {"factor": 4.0}
"""Values of options without a default, with which an open description is checked."""


class Part:
    """A mechanism or a transform inside an embedding.

    `preset` are the options that a preset sets and a description may change, `chosen` the options
    that the description sets. `place` is the index of a transform that the description lists.
    """

    def __init__(
        self,
        kind: type[Any],
        preset: Mapping[str, Any],
        spec: Mapping[str, Any],
        place: int | None = None,
    ) -> None:
        own = embedding_options(kind)
        self.kind, self.name, self.place = kind, str(kind.name), place
        self.preset = {option: value for option, value in preset.items() if option in own}
        self.chosen = {option: value for option, value in spec.items() if option in own}

    @property
    def composition(self) -> dict[str, Any]:
        """The name of the part, with the options that are set."""
        return {"type": self.name, **self.preset, **self.chosen}

    @property
    def open(self) -> list[str]:
        """The options that have neither a value nor a default."""
        options = embedding_options(self.kind).items()
        return [name for name, each in options if each.required and name not in self.composition]

    def options(self) -> dict[str, Option]:
        """Every option that a description may set by name, with the default of the preset."""
        return {
            name: Option(each.annotation, self.preset.get(name, each.default))
            for name, each in embedding_options(self.kind).items()
            if not (name == TRANSFORMS and TRANSFORMS in self.preset)
        }


@dataclass(frozen=True, kw_only=True)
class Description:
    """A preset, a mechanism or a transform (its `kind`), with the options that are set so far.

    `parts` are the mechanism and the transforms in their order. The mechanism of a lone transform
    is RoPE.
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    spec: Mapping[str, Any]

    @property
    def source(self) -> str:
        """The paper that proposed it, and the equation or section."""
        preset = PRESETS.get(self.name)
        return str(self.own_parts[0].kind.source) if preset is None else preset.source

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """The parts that the name means: a transform does not include its RoPE."""
        return self.parts[1:] if self.kind == "transform" else self.parts

    @property
    def composition(self) -> dict[str, Any]:
        """The parts with the options that are set, as a sweep file writes them."""
        mechanism, *transforms = (part.composition for part in self.own_parts)
        return {**mechanism, TRANSFORMS: transforms} if transforms else mechanism

    @property
    def open(self) -> list[str]:
        """The options that must be set before the embedding can be built."""
        return list(dict.fromkeys(option for part in self.parts for option in part.open))

    def definition(self, options: Mapping[str, Any], at: FieldPath = ("embedding",)) -> Embedding:
        """The embedding, with `options` for every part that has them and leaves them open.

        Raises EmbeddingError for wrong options, and for a required option that is still open.
        """
        spec: dict[str, Any] = copy.deepcopy(dict(self.spec))
        for part in self.parts:
            target = spec if part.place is None else spec[TRANSFORMS][part.place]
            for option, value in options.items():
                if option in embedding_options(part.kind):
                    target.setdefault(option, value)
        return parse_embedding(spec, at)


def describe(spec: Spec, at: FieldPath = ("embedding",)) -> Description:
    """The parts and options of a description, whose required options may be open.

    `at` is the path of the description in errors. Raises EmbeddingError with every problem found.
    """
    named = _named(spec)
    if named is None:
        parse_embedding(spec, at)  # raises, saying what is wrong
        raise AssertionError(spec)
    name = named["type"]
    kinds = {
        **dict.fromkeys(TRANSFORM_TYPES.all(), "transform"),
        **dict.fromkeys(EMBEDDING_TYPES.all(), "mechanism"),
        **dict.fromkeys(PRESETS, "preset"),
    }
    if name not in kinds:
        where = at if isinstance(spec, str) else (*at, "type")
        raise EmbeddingError(unknown_name(where, "embedding or transform", name, sorted(kinds)))
    if kinds[name] == "transform":
        named = {"type": Rotary.name, TRANSFORMS: [named]}
    composition = PRESETS[name].composition if name in PRESETS else {"type": named["type"]}
    parts = tuple(_parts(named, composition))
    description = Description(name=name, kind=kinds[name], parts=parts, spec=named)
    try:
        description.definition(EXAMPLES, at)
    except EmbeddingError as error:
        still_open = {
            (*at, *(() if part.place is None else (TRANSFORMS, part.place)), option)
            for part in parts
            for option in part.open
        }
        if problems := [each for each in error.problems if each.path not in still_open]:
            raise EmbeddingError(problems) from None
    return description


def _named(spec: Any) -> dict[str, Any] | None:
    """A description as a mapping with a type; None if it has no type."""
    if isinstance(spec, str):
        return {"type": spec}
    if isinstance(spec, Mapping) and isinstance(spec.get("type"), str):
        return {str(option): value for option, value in spec.items()}
    return None


def _parts(spec: dict[str, Any], composition: Mapping[str, Any]) -> Iterator[Part]:
    """The parts of a composition, then the transforms that `spec` lists, which become mappings."""
    for kind, preset in parts_of(composition):
        yield Part(kind, preset, spec)
    listed = spec.get(TRANSFORMS)
    if not isinstance(listed, list | tuple):
        return
    spec[TRANSFORMS] = list(listed)
    for place, item in enumerate(listed):
        named = _named(item)
        if named is not None and named["type"] in TRANSFORM_TYPES.all():
            spec[TRANSFORMS][place] = named
            yield Part(TRANSFORM_TYPES.all()[named["type"]], {}, named, place)


FAR = 10**12
"""A length in tokens beyond every original length, where dynamic frequencies have changed."""


@dataclass(frozen=True)
class Inspection:
    """The numbers of an embedding at a shape, and in sequences of `longer` tokens.

    Raises EmbeddingError if the definition does not fit the shape.
    """

    definition: Embedding
    shape: Shape
    longer: int | None = None

    def __post_init__(self) -> None:
        check_definition(self.definition, self.shape)

    @property
    def parameters(self) -> int:
        """The learned parameters of one layer, or of the one module that all layers share."""
        return sum(math.prod(size) for size in self.definition.learned_sizes(self.shape).values())

    @property
    def rotating(self) -> int | None:
        """How many of the head_dim/2 pairs rotate; None for an embedding without rotation."""
        frequencies = self.definition.pair_frequencies(self.shape)
        return sum(omega != 0 for omega in frequencies) if frequencies else None

    @property
    def follows_length(self) -> bool:
        """Whether frequencies depend on the length of the sequence."""
        at_training_length = self.definition.pair_frequencies(self.shape)
        return at_training_length != self.definition.pair_frequencies(self.shape, FAR)

    @property
    def frequencies(self) -> dict[int, tuple[float, ...]]:
        """The pairs' frequencies in radians per token, by the length of the sequence in tokens: at
        the training length, and at `longer` where they depend on it."""
        lengths = [self.shape.train_length]
        if self.longer is not None and self.follows_length:
            lengths.append(self.longer)
        found = {n: self.definition.pair_frequencies(self.shape, n) for n in lengths}
        return {length: frequencies for length, frequencies in found.items() if frequencies}


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
    problems: tuple[Problem, ...] = tuple(
        Problem(("embedding", option), f"is missing: {description.name} needs {option}")
        for option in description.open
        if option not in options
    )
    inspection = None
    if not problems:
        definition = description.definition(options)
        try:
            inspection = Inspection(definition, shape, longer)
        except EmbeddingError as error:
            problems = error.problems
    return InspectionRow(description=description, inspection=inspection, problems=problems)
