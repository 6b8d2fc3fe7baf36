"""From what a sweep file says about an embedding to its definition, and to one canonical form.

A description is a preset's name, a mapping `{type: NAME, option: value}` or a composition
`{type: rotary, transforms: [{type: yarn, factor: 4}, NAME]}`. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import Parsed
from fope_lab.config.options import Entry, Option, Registry, options_of, summary
from fope_lab.config.problems import FieldPath, unknown_name
from fope_lab.embeddings.base import (
    EMBEDDING_TYPES,
    Embedding,
    EmbeddingError,
    PatternLayer,
)
from fope_lab.embeddings.composition import nested
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES, FrequencyTransform
from fope_lab.embeddings.presets import OPEN, PRESETS, Preset
from fope_lab.embeddings.query_scales import QUERY_SCALE_TYPES, QueryScale
from fope_lab.embeddings.within import WHERES, Within

TRANSFORMS = "transforms"
"""The option that holds frequency transforms."""
PATTERN = "pattern"
"""The option that holds the layers of a pattern."""
WHERE = "where"
"""What says which layers of a model get an embedding."""
QUERY_SCALE = "query_scale"
"""The option that holds a factor of queries."""


class _Transforms(Registry[FrequencyTransform]):
    def title(self, name: str) -> str:
        return name  # the path in an error says of what


FREQUENCY_TRANSFORMS = _Transforms("frequency transform", TRANSFORM_TYPES, error=EmbeddingError)
"""Every frequency transform by name."""
QUERY_SCALES: Registry[QueryScale] = Registry(
    "query scale", QUERY_SCALE_TYPES, error=EmbeddingError
)
"""Every query scale by name."""


class _Embeddings(Registry[Embedding]):
    """A preset is a composition, whose options go to each of its parts that has them."""

    def all_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*EMBEDDING_TYPES.all(), *PRESETS)))

    def entry(self, name: str) -> Entry[Embedding]:
        if name in PRESETS:
            preset = PRESETS[name]
            if PATTERN in preset.composition:
                return _pattern_entry(name, preset)
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
        """The options to be set by name; those that are set are defaults, and transforms stay, as
        does the pattern of a preset."""
        if PATTERN in self.given:
            return _pattern_options(self.given[PATTERN])[0]
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
    for name, each in LISTED.items():
        if name in options:
            plain, listed = options[name], tuple[Annotated[Any, each], ...]
            options[name] = Option(Annotated[listed, Doc(plain.doc)], plain.default)
    if QUERY_SCALE in options:
        plain = options[QUERY_SCALE]
        options[QUERY_SCALE] = Option(Annotated[Any, _SCALE, Doc(plain.doc)], plain.default)
    return options


def _parse_scale(value: Any, base: Path) -> QueryScale | None:
    """The scale that a description stands for; one of a preset has been read already."""
    if value is None or isinstance(value, QueryScale):
        return value
    return QUERY_SCALES.parse(value, base)


_SCALE = Parsed(_parse_scale, QUERY_SCALES.json_schema)


def _parse_layer(value: Any, base: Path) -> PatternLayer:
    """An embedding, or a mapping with an embedding and a window."""
    if not (isinstance(value, Mapping) and "embedding" in value):
        value = {"embedding": value}
    return _LAYER.read(value, base)


def _layer_schema() -> dict[str, Any]:
    # Embeddings in full would be described within themselves without end.
    embedding = {"anyOf": [{"enum": EMBEDDINGS.names()}, {"type": "object"}]}
    window = _LAYER.options["window"].json_schema()
    told = {**embedding, "description": "What the layer attends with."}
    properties = {"embedding": told, "window": window}
    return {"anyOf": [embedding, {"type": "object", "properties": properties}]}


_EMBEDDING = Parsed(EMBEDDINGS.parse, dict)
_WINDOW = Annotated[int, Interval(ge=1), Doc("How many tokens a query sees, itself included.")]
_LAYER = Entry(
    "",
    summary(PatternLayer),
    {
        "embedding": Option(Annotated[Any, _EMBEDDING], MISSING),
        "window": Option(_WINDOW, None),
    },
    PatternLayer,
)
LISTED = {
    TRANSFORMS: Parsed(
        FREQUENCY_TRANSFORMS.parse, FREQUENCY_TRANSFORMS.json_schema, "frequency transforms"
    ),
    PATTERN: Parsed(_parse_layer, _layer_schema, "layers"),
}
"""What parses each item of the options that are lists."""


def _entry(name: str, description: str, composition: Mapping[str, Any]) -> Entry[Embedding]:
    """The entry of a composition: the options that it sets are defaults, its transforms stay."""
    parts = parts_of(composition)
    options = {name: option for part in parts for name, option in part.options.items()}
    refused = {TRANSFORMS: f"{name} rotates nothing: it takes no frequency transforms"}
    if parts[0].kind.rotates:
        mechanism = f"{{type: {parts[0].kind.name}, {TRANSFORMS}: […]}}"
        refused = {TRANSFORMS: f"{name} has its own transforms; for others, write {mechanism}"}
    return Entry(name, description, options, functools.partial(_made, parts), refused)


def _pattern_entry(name: str, preset: Preset) -> Entry[Embedding]:
    """The entry of a pattern: an option goes to all layers that have it, and `window` to those for
    which the preset leaves it open."""
    layers = preset.composition[PATTERN]
    options, differing = _pattern_options(layers)
    elsewhere = f"write {{type: {preset.composition['type']}, {PATTERN}: […]}}"
    refused = {option: f"the layers of {name} differ in it: {elsewhere}" for option in differing}
    refused[TRANSFORMS] = f"its layers have transforms of their own: {elsewhere}"

    def made(**values: Any) -> Embedding:
        pattern = []
        for layer in layers:
            of = layer["embedding"]
            has = EMBEDDINGS.entry(of["type"]).options
            given = {option: value for option, value in values.items() if option in has}
            window = {"window": values["window"]} if "window" in layer else {}
            pattern.append({"embedding": {**of, **given}, **window})
        return EMBEDDINGS.parse({**preset.composition, PATTERN: pattern})

    return Entry(name, f"The preset {name}: {preset.source}.", options, made, refused)


def _pattern_options(
    layers: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Option], frozenset[str]]:
    """The options of a preset's layers that are alike in all that have them, and which are not."""
    options: dict[str, Option] = {}
    differing: set[str] = {TRANSFORMS}
    for of in (layer["embedding"] for layer in layers):
        for name, option in EMBEDDINGS.entry(of["type"]).options.items():
            own = Option(option.annotation, of.get(name, option.default))
            if options.setdefault(name, own).default != own.default:
                differing.add(name)
    if any(layer.get("window") == OPEN for layer in layers):
        options["window"] = Option(_WINDOW, MISSING)
    alike = {name: option for name, option in options.items() if name not in differing}
    return alike, frozenset(differing - {TRANSFORMS})


def _made(parts: list[Part], **values: Any) -> Embedding:
    built = []
    for kind, given in parts:
        own = {name: value for name, value in values.items() if name in options_of(kind)}
        fixed = {name: nested(name, value) for name, value in given.items() if name != TRANSFORMS}
        built.append(kind(**fixed | own))
    mechanism, *transforms = built
    if not transforms:
        return mechanism
    return dataclasses.replace(mechanism, **{TRANSFORMS: tuple(transforms)})


EXAMPLES: Mapping[str, Any] = {
    "factor": 4.0,
    "pattern": [{"embedding": "rope", "window": 128}, "nope"],
    "window": 128,
    "pairs": 8,
    "group": 4,
    "short": [1.0] * 32,
    "long": [4.0] * 32,
}
"""Values of options without a default, with which catalogue and gallery show an embedding."""


def example(name: str) -> dict[str, Any]:
    """A preset or mechanism whose required options are set, where there is an example of them."""
    required = EMBEDDINGS.entry(name).required
    return {"type": name, **{key: value for key, value in EXAMPLES.items() if key in required}}


Spec = str | Mapping[str, Any] | Embedding
"""A description, or the definition that it stands for."""


def embedding_names() -> list[str]:
    """Every preset, then each mechanism that no preset is made of."""
    made = (preset.composition for preset in PRESETS.values())
    used = {composition["type"] for composition in made if PATTERN not in composition}
    return [*PRESETS, *(name for name in EMBEDDING_TYPES.all() if name not in used)]


def resolve_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> dict[str, Any]:
    """The canonical composition of a description: equal embeddings give equal dicts.

    Presets become compositions and options that have their default are left out. `at` is the
    field's path in errors. Raises EmbeddingError with every problem found.
    """
    return parse_embedding(spec, at).canonical()


def parse_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> Embedding:
    """The definition that a description stands for. Raises EmbeddingError.

    `where` in a description makes it that of some layers of a model that there is (within.py).
    """
    if isinstance(spec, Embedding):
        return spec
    if isinstance(spec, Mapping) and WHERE in spec:
        of = EMBEDDINGS.parse({k: v for k, v in spec.items() if k != WHERE}, at=at)
        if spec[WHERE] not in WHERES:
            raise EmbeddingError(unknown_name((*at, WHERE), "kind of layers", spec[WHERE], WHERES))
        return Within(embedding=of, where=spec[WHERE])
    return EMBEDDINGS.parse(spec, at=at)


def preset_of(spec: Spec) -> dict[str, Any]:
    """An embedding as a preset with options, such as {type: fope, base: 129}.

    If several presets fit, the one that needs the fewest options is chosen; if none does, the
    result is its composition. Raises EmbeddingError for a wrong description.
    """
    resolved = resolve_embedding(spec)
    own = [*resolved.get(TRANSFORMS, ()), resolved]
    candidates = []
    for name, preset in PRESETS.items():
        if PATTERN in preset.composition:
            candidates += _patterns(name, resolved)
            continue
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


def _patterns(name: str, resolved: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A pattern as the preset of this name, if it is that: each option as the first layer that has
    one gives it."""
    layers: list[Mapping[str, Any]] = list(resolved.get(PATTERN, ()))
    parts = [
        each
        for layer in layers
        for of in (layer["embedding"],)
        for each in (layer, of, *of.get(TRANSFORMS, ()))
    ]
    given = {n: v for part in reversed(parts) for n, v in part.items()}
    options = {n: given[n] for n in EMBEDDINGS.entry(name).options if n in given}
    needed = {n: v for n, v in options.items() if n in EMBEDDINGS.entry(name).required}
    found = []
    for chosen in (needed, options):
        try:
            if resolve_embedding(candidate := {"type": name, **chosen}) == resolved:
                found.append(candidate)
        except EmbeddingError:  # it is another pattern
            continue
    return found
