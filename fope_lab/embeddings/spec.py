"""From what a sweep file says about an embedding to its definition, and to one canonical form.

A description is a preset's name, a mapping `{type: NAME, option: value}` or a composition
`{type: rotary, transforms: [{type: yarn, factor: 4}, NAME]}`. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import Parsed
from fope_lab.config.options import Entry, Option, Registry, options_of, summary
from fope_lab.config.problems import FieldPath
from fope_lab.embeddings.base import EMBEDDING_TYPES, Embedding, EmbeddingError
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, FrequencyTransform
from fope_lab.embeddings.presets import PRESETS, Preset

TRANSFORMS = "transforms"
"""The option that holds frequency transforms."""


class _Transforms(Registry[FrequencyTransform]):
    def title(self, name: str) -> str:
        return name  # the path in an error says of what


FREQUENCY_TRANSFORMS = _Transforms("frequency transform", TRANSFORM_TYPES, error=EmbeddingError)
"""Every frequency transform by name."""


class _Embeddings(Registry[Embedding]):
    """A preset is a composition, whose options go to each of its parts that has them."""

    def all_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*EMBEDDING_TYPES.all(), *PRESETS)))

    def entry(self, name: str) -> Entry[Embedding]:
        if name in PRESETS:
            preset = PRESETS[name]
            return _entry(name, f"The preset {name}: {preset.source}.", preset.composition)
        return _entry(name, summary(EMBEDDING_TYPES.all()[name]), {"type": name})


EMBEDDING_TYPES.reserve(PRESETS)
EMBEDDINGS = _Embeddings("embedding", EMBEDDING_TYPES, error=EmbeddingError)
"""Every mechanism and preset by name."""


class Part(NamedTuple):
    """A mechanism or a transform of a composition, with the options that are set there."""

    kind: type[Any]
    given: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Option]:
        """The options to be set by name; those that are set are defaults, and transforms stay."""
        return {
            name: Option(each.annotation, self.given.get(name, each.default))
            for name, each in embedding_options(self.kind).items()
            if not (name == TRANSFORMS and TRANSFORMS in self.given)
        }


def parts_of(composition: Mapping[str, Any]) -> list[Part]:
    """The mechanism of a composition and its transforms, or a lone transform."""
    transforms = composition.get(TRANSFORMS, ())
    kinds: list[type[Any]] = [_kind(composition["type"])]
    kinds += [TRANSFORM_TYPES.all()[part["type"]] for part in transforms]
    return [
        Part(kind, {name: value for name, value in part.items() if name != "type"})
        for kind, part in zip(kinds, (composition, *transforms), strict=True)
    ]


def named(name: str) -> Preset:
    """A preset, or a mechanism or a transform by itself. Raises KeyError for another name."""
    return PRESETS.get(name) or Preset({"type": name}, _kind(name).source)


def _kind(name: str) -> type[Any]:
    return EMBEDDING_TYPES.all().get(name) or TRANSFORM_TYPES.all()[name]


def embedding_options(kind: type[Any]) -> Mapping[str, Option]:
    """The options of a mechanism or transform by name."""
    options = dict(options_of(kind))
    if TRANSFORMS in options:
        registry, plain = FREQUENCY_TRANSFORMS, options[TRANSFORMS]
        each = Parsed(registry.parse, registry.json_schema, f"{registry.noun}s")
        listed = tuple[Annotated[FrequencyTransform, each], ...]
        options[TRANSFORMS] = Option(Annotated[listed, Doc(plain.doc)], plain.default)
    return options


def _entry(name: str, description: str, composition: Mapping[str, Any]) -> Entry[Embedding]:
    """The entry of a composition: the options that it sets are defaults, its transforms stay."""
    parts = parts_of(composition)
    options = {name: option for part in parts for name, option in part.options.items()}
    refused = {TRANSFORMS: f"{name} rotates nothing: it takes no frequency transforms"}
    if parts[0].kind.rotates:
        mechanism = f"{{type: {parts[0].kind.name}, {TRANSFORMS}: […]}}"
        refused = {TRANSFORMS: f"{name} has its own transforms; for others, write {mechanism}"}
    return Entry(name, description, options, functools.partial(_made, parts), refused)


def _made(parts: list[Part], **values: Any) -> Embedding:
    built = []
    for kind, given in parts:
        own = {name: value for name, value in values.items() if name in options_of(kind)}
        built.append(kind(**{k: v for k, v in given.items() if k != TRANSFORMS} | own))
    mechanism, *transforms = built
    if not transforms:
        return mechanism
    return dataclasses.replace(mechanism, **{TRANSFORMS: tuple(transforms)})


EXAMPLES: Mapping[str, Any] = {"factor": 4.0}
"""Values of options without a default, with which catalogue and gallery show an embedding."""


def example(name: str) -> dict[str, Any]:
    """A preset or mechanism whose required options are set, where there is an example of them."""
    required = EMBEDDINGS.entry(name).required
    return {"type": name, **{key: value for key, value in EXAMPLES.items() if key in required}}


Spec = str | Mapping[str, Any] | Embedding
"""A description, or the definition that it stands for."""


def embedding_names() -> list[str]:
    """Every preset, then each mechanism that no preset is made of."""
    used = {preset.composition["type"] for preset in PRESETS.values()}
    return [*PRESETS, *(name for name in EMBEDDING_TYPES.all() if name not in used)]


def resolve_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> dict[str, Any]:
    """The canonical composition of a description: equal embeddings give equal dicts.

    Presets become compositions and options that have their default are left out. `at` is the
    field's path in errors. Raises EmbeddingError with every problem found.
    """
    return parse_embedding(spec, at).canonical()


def parse_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> Embedding:
    """The definition that a description stands for. Raises EmbeddingError."""
    return spec if isinstance(spec, Embedding) else EMBEDDINGS.parse(spec, at=at)


def preset_of(spec: Spec) -> dict[str, Any]:
    """An embedding as a preset with options, such as {type: fope, base: 129}.

    If several presets fit, the one that needs the fewest options is chosen; if none does, the
    result is its composition. Raises EmbeddingError for a wrong description.
    """
    resolved = resolve_embedding(spec)
    own = [*resolved.get(TRANSFORMS, ()), resolved]
    candidates = []
    for name, preset in PRESETS.items():
        fixed = [*preset.composition.get(TRANSFORMS, ()), preset.composition]
        if [part["type"] for part in own] != [part["type"] for part in fixed]:
            continue
        options = {
            option: value
            for part, given in zip(own, fixed, strict=True)
            for option, value in part.items()
            if option not in ("type", TRANSFORMS) and given.get(option) != value
        }
        candidate = {"type": name, **options}
        if resolve_embedding(candidate) == resolved:
            candidates.append(candidate)
    return min(candidates, key=len, default=resolved)
