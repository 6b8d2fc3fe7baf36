"""The parts of an embedding, and every option with its default and its meaning.

`describe` reads a preset, a mechanism, a transform, or any description of a sweep file. Required
options may still be open. Nothing here needs torch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.options import Option
from fope_lab.config.problems import FieldPath, unknown_name
from fope_lab.embeddings.base import EMBEDDING_TYPES, TRANSFORM_TYPES, Embedding
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.registry import TRANSFORMS, embedding_options, parts_of
from fope_lab.embeddings.rotary import Rotary
from fope_lab.embeddings.spec import Spec, parse_embedding

EXAMPLES: Mapping[str, Any] = {"factor": 4.0}
"""Values of options without a default, with which an open description is checked."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A mechanism or a transform inside an embedding.

    `preset` are the options that a preset sets and a description may change, `chosen` the options
    that the description sets. `place` is the index of a transform that the description lists.
    """

    kind: type[Any]
    preset: Mapping[str, Any]
    chosen: Mapping[str, Any]
    place: int | None = None

    @property
    def name(self) -> str:
        """The name of the part in sweep files."""
        return str(self.kind.name)

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
    """A description as a mapping with a type; None if it has no type."""
    if isinstance(spec, str):
        return {"type": spec}
    if isinstance(spec, Mapping) and isinstance(spec.get("type"), str):
        return {str(option): value for option, value in spec.items()}
    return None


def _parts(spec: dict[str, Any], composition: Mapping[str, Any]) -> Iterator[Part]:
    """The parts of a composition, then the transforms that the description lists.

    These become mappings in `spec`; items that are no descriptions stay as they are.
    """
    for kind, preset in parts_of(composition):
        yield _part(kind, preset, spec)
    listed = spec.get(TRANSFORMS)
    if not isinstance(listed, list | tuple):
        return
    spec[TRANSFORMS] = list(listed)
    for place, item in enumerate(listed):
        named = _named(item)
        if named is not None and named["type"] in TRANSFORM_TYPES.all():
            spec[TRANSFORMS][place] = named
            yield _part(TRANSFORM_TYPES.all()[named["type"]], {}, named, place)


def _part(
    kind: type[Any], preset: Mapping[str, Any], spec: Mapping[str, Any], place: int | None = None
) -> Part:
    own = embedding_options(kind)
    return Part(
        kind=kind,
        preset={option: value for option, value in preset.items() if option in own},
        chosen={option: value for option, value in spec.items() if option in own},
        place=place,
    )


def _check(description: Description, at: FieldPath) -> None:
    """Raise EmbeddingError for every problem of the options that are set."""
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
