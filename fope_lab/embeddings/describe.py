"""What an embedding is made of: its parts, and every option with its default and its meaning.

`describe` reads a preset, a mechanism, a transform, or any description of a sweep file, which may
leave required options open. Torch-free.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import FieldPath, unknown_name
from fope_lab.embeddings.base import Embedding, embedding_types, transform_types
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.schema import meaning, option_json_schema, parts_of
from fope_lab.embeddings.spec import TRANSFORMS, Spec, option_types, parse_embedding

EXAMPLES: Mapping[str, Any] = {"factor": 4.0}
"""Values for options that have no default, where one is needed to go on."""

NONE = dataclasses.MISSING
"""The default of a required option, and the value of one that is left open."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of one part: the JSON Schema of what it may be, its default, its meaning.

    `value` is what the description sets it to.
    """

    key: str
    schema: Mapping[str, Any]
    default: Any
    meaning: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Part:
    """A mechanism or a transform inside an embedding.

    `preset` are the options that a preset sets and a description may change, `chosen` those that
    the description sets. A transform that the description lists itself has its place there.
    """

    kind: type[Any]
    preset: Mapping[str, Any]
    chosen: Mapping[str, Any]
    place: int | None = None

    @property
    def name(self) -> str:
        """Its name in sweep files."""
        return str(self.kind.name)

    @property
    def composition(self) -> dict[str, Any]:
        """Its name with the options that are set."""
        return {"type": self.name, **self.preset, **self.chosen}

    @property
    def open(self) -> list[str]:
        """The options that have no value yet, and no default."""
        required = (field.name for field in dataclasses.fields(self.kind) if field.default is NONE)
        return [option for option in required if option not in self.composition]

    def options(self) -> Iterator[Option]:
        """Every option that a description may set."""
        for field in dataclasses.fields(self.kind):
            if field.name == TRANSFORMS and TRANSFORMS in self.preset:
                continue
            yield Option(
                key=field.name,
                schema=option_json_schema(self.kind, field.name),
                default=self.preset.get(field.name, field.default),
                meaning=meaning(self.kind, field.name),
                value=self.chosen.get(field.name, NONE),
            )


@dataclass(frozen=True, kw_only=True)
class Description:
    """A preset, a mechanism or a transform (its `kind`), with the options that are set so far.

    `parts` are the mechanism and the transforms in their order. A transform stands on RoPE.
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    spec: Mapping[str, Any]

    @property
    def source(self) -> str:
        """Its paper."""
        preset = PRESETS.get(self.name)
        return str(self.own_parts[0].kind.source) if preset is None else preset.source

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """The parts that the name stands for: of a transform, not the RoPE under it."""
        return self.parts[1:] if self.kind == "transform" else self.parts

    @property
    def composition(self) -> dict[str, Any]:
        """The parts with the options that are set, in the words of a sweep file."""
        mechanism, *transforms = (part.composition for part in self.own_parts)
        return {**mechanism, TRANSFORMS: transforms} if transforms else mechanism

    @property
    def open(self) -> list[str]:
        """The options that have to be set before it can be built."""
        return list(dict.fromkeys(option for part in self.parts for option in part.open))

    def definition(self, options: Mapping[str, Any], at: FieldPath = ("embedding",)) -> Embedding:
        """The embedding, with `options` for the parts that have them and leave them open.

        Raises EmbeddingError, also for a required option that is open still.
        """
        spec: dict[str, Any] = copy.deepcopy(dict(self.spec))
        for part in self.parts:
            target = spec if part.place is None else spec[TRANSFORMS][part.place]
            for option, value in options.items():
                if option in option_types(part.kind):
                    target.setdefault(option, value)
        return parse_embedding(spec, at)


def describe(spec: Spec, at: FieldPath = ("embedding",)) -> Description:
    """What a description stands for; required options may be open.

    `at` is the description's path in errors. Raises EmbeddingError with every problem found.
    """
    named = _named(spec)
    if named is None:
        parse_embedding(spec, at)  # raises, saying what is wrong
        raise AssertionError(spec)
    name = named["type"]
    kinds = {
        **dict.fromkeys(transform_types(), "transform"),
        **dict.fromkeys(embedding_types(), "mechanism"),
        **dict.fromkeys(PRESETS, "preset"),
    }
    if name not in kinds:
        where = at if isinstance(spec, str) else (*at, "type")
        raise EmbeddingError(unknown_name(where, "embedding or transform", name, sorted(kinds)))
    if kinds[name] == "transform":
        named = {"type": Rotary.name, TRANSFORMS: [named]}
    preset = PRESETS.get(name)
    description = Description(
        name=name,
        kind=kinds[name],
        parts=tuple(_parts(named, preset.composition if preset else {"type": named["type"]})),
        spec=named,
    )
    _check(description, at)
    return description


def _named(spec: Any) -> dict[str, Any] | None:
    """A description as a mapping that has its type; None if it has none."""
    if isinstance(spec, str):
        return {"type": spec}
    if isinstance(spec, Mapping) and isinstance(spec.get("type"), str):
        return {str(option): value for option, value in spec.items()}
    return None


def _parts(spec: dict[str, Any], composition: Mapping[str, Any]) -> Iterator[Part]:
    """The parts of a composition, then the transforms that the description lists.

    These become mappings in `spec`; what can't be read is left as it is.
    """
    for kind, preset in parts_of(composition):
        yield _part(kind, preset, spec)
    listed = spec.get(TRANSFORMS)
    if not isinstance(listed, list | tuple):
        return
    spec[TRANSFORMS] = list(listed)
    for place, item in enumerate(listed):
        named = _named(item)
        if named is not None and named["type"] in transform_types():
            spec[TRANSFORMS][place] = named
            yield _part(transform_types()[named["type"]], {}, named, place)


def _part(
    kind: type[Any], preset: Mapping[str, Any], spec: Mapping[str, Any], place: int | None = None
) -> Part:
    own = option_types(kind)
    return Part(
        kind=kind,
        preset={option: value for option, value in preset.items() if option in own},
        chosen={option: value for option, value in spec.items() if option in own},
        place=place,
    )


def _check(description: Description, at: FieldPath) -> None:
    """Raises EmbeddingError for what is wrong with the options that are set."""
    try:
        description.definition(EXAMPLES, at)
    except EmbeddingError as error:
        still_open = {
            (*at, *(() if part.place is None else (TRANSFORMS, part.place)), option)
            for part in description.parts
            for option in part.open
        }
        problems = [problem for problem in error.problems if problem.path not in still_open]
        if problems:
            raise EmbeddingError(problems) from None
