"""From what a sweep file says about an embedding to its definition, and to one canonical form.

A description is a preset's name, a mapping `{type: NAME, option: value}` or a composition
`{type: rotary, transforms: [{type: yarn, factor: 4}, NAME]}`. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from fope_lab.config.problems import FieldPath, Problem, shown, unknown_name
from fope_lab.embeddings.base import (
    Embedding,
    FrequencyTransform,
    Shape,
    canonical,
    check_definition,
    embedding_types,
    transform_types,
)
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.embeddings.presets import PRESETS

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Spec = str | Mapping[str, Any]
TRANSFORMS = "transforms"
"""The option that holds frequency transforms."""


def embedding_names() -> list[str]:
    """Every preset, then each mechanism that no preset is made of."""
    used = {preset.composition["type"] for preset in PRESETS.values()}
    return [*PRESETS, *(name for name in sorted(embedding_types()) if name not in used)]


def resolve_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> dict[str, Any]:
    """The canonical composition of a description: equal embeddings give equal dicts.

    Presets become compositions and options that have their default are left out. `at` is the
    field's path in errors. Raises EmbeddingError with every problem found.
    """
    return canonical(parse_embedding(spec, at))


def check_embedding(
    spec: Spec,
    *,
    head_dim: int,
    num_heads: int,
    train_length: int,
    num_kv_heads: int | None = None,
    at: FieldPath = ("embedding",),
) -> None:
    """Raises EmbeddingError if the embedding cannot be built for these sizes. Torch-free."""
    shape = Shape(
        head_dim=head_dim,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        train_length=train_length,
    )
    check_definition(parse_embedding(spec, at), shape, at)


def longest_sequence(spec: Spec, **sizes: int) -> int | None:
    """Tokens of the longest sequence that an embedding has positions for; None where any will do.

    `sizes` are those of `check_embedding`. Torch-free.
    """
    return parse_embedding(spec).longest_sequence(Shape(**sizes))


def learned_parameters(spec: Spec, num_layers: int, **sizes: int) -> int:
    """How many parameters an embedding learns in a model of `num_layers`; `sizes` are those of
    `check_embedding`. Torch-free."""
    definition = parse_embedding(spec)
    of_layer = sum(math.prod(size) for size in definition.learned_sizes(Shape(**sizes)).values())
    return of_layer * (num_layers if definition.per_layer else 1)


def parse_embedding(spec: Spec, at: FieldPath = ("embedding",)) -> Embedding:
    """The definition that a description stands for. Raises EmbeddingError."""
    reader = _Reader()
    definition = reader.embedding(spec, at)
    if definition is None or reader.problems:
        raise EmbeddingError(reader.problems)
    return definition


def option_types(part: type[Any]) -> dict[str, Any]:
    """The options of a mechanism or transform, with their annotated types, in order."""
    hints = get_type_hints(part, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(part)}


@functools.cache
def _adapter(part: Any, option: str) -> TypeAdapter[Any]:
    """What checks an option's value. Cached: a sweep has thousands of values to check."""
    from pydantic import TypeAdapter

    return TypeAdapter(option_types(part)[option])


class _Reader:
    """Reads one description; what is wrong collects in `problems`, and None stands for it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def embedding(self, spec: Any, at: FieldPath) -> Embedding | None:
        """A preset or a mechanism; a preset's options go to each of its parts that has them."""
        named = self._named(spec, at, "embedding")
        if named is None:
            return None
        name, options = named
        mechanisms = embedding_types()
        preset = PRESETS.get(name)
        composition: Mapping[str, Any] = preset.composition if preset else {"type": name}
        mechanism = mechanisms.get(composition["type"])
        if mechanism is None:
            self._misspelt(spec, at, "embedding", name, {*mechanisms, *PRESETS})
            return None
        preset_transforms = composition.get(TRANSFORMS, ())
        kinds = [transform_types()[transform["type"]] for transform in preset_transforms]
        own = option_types(mechanism).keys() - ({TRANSFORMS} if kinds else set())
        allowed = own.union(*(option_types(kind) for kind in kinds))
        for option in options:
            if option not in allowed:
                self.problems.append(
                    _unknown_option((*at, option), name, option, mechanism, allowed)
                )
        transforms = tuple(
            self._build(kind, _only(option_types(kind), fixed, options), name, at)
            for kind, fixed in zip(kinds, preset_transforms, strict=True)
        )
        definition = self._build(mechanism, _only(own, composition, options), name, at)
        if definition is None or not transforms:
            return definition
        return dataclasses.replace(definition, **{TRANSFORMS: transforms})

    def transform(self, spec: Any, at: FieldPath) -> FrequencyTransform | None:
        """A frequency transform: its name, or a mapping with its options."""
        named = self._named(spec, at, "frequency transform")
        if named is None:
            return None
        name, options = named
        kind = transform_types().get(name)
        if kind is None:
            self._misspelt(spec, at, "frequency transform", name, transform_types())
            return None
        allowed = option_types(kind)
        for option in options:
            if option not in allowed:
                self.problems.append(
                    unknown_name((*at, option), f"option of {name}", option, sorted(allowed))
                )
        return self._build(kind, _only(allowed, options), name, at)

    def _named(self, spec: Any, at: FieldPath, what: str) -> tuple[str, dict[str, Any]] | None:
        """The name and the options of a description."""
        if isinstance(spec, str):
            return spec, {}
        if not isinstance(spec, Mapping):
            needs = f"the {what}'s name or a mapping with its type"
            self.problems.append(Problem(at, f"found {shown(spec)}", needs))
            return None
        if not isinstance(spec.get("type"), str):
            found = (
                f"found {shown(spec['type'])}, needs the {what}'s name"
                if "type" in spec
                else f"is missing: the {what}'s name"
            )
            self.problems.append(Problem((*at, "type"), found))
            return None
        return spec["type"], {str(option): spec[option] for option in spec if option != "type"}

    def _misspelt(
        self, spec: Any, at: FieldPath, what: str, name: str, known: Iterable[str]
    ) -> None:
        where = at if isinstance(spec, str) else (*at, "type")
        self.problems.append(unknown_name(where, what, name, sorted(known)))

    def _build(self, part: type[Any], options: Mapping[str, Any], name: str, at: FieldPath) -> Any:
        """An instance of `part`, or None after adding what is wrong to `problems`."""
        before = len(self.problems)
        values = {
            option: self._transforms(value, (*at, option))
            if option == TRANSFORMS
            else self._option(part, option, value, (*at, option))
            for option, value in options.items()
        }
        for field in dataclasses.fields(part):
            if field.default is dataclasses.MISSING and field.name not in values:
                self.problems.append(Problem((*at, field.name), f"is missing: {name} needs it"))
        if len(self.problems) > before:
            return None
        try:
            return part(**values)
        except ValueError as error:  # options that do not go together
            self.problems.append(Problem(at, str(error)))
            return None

    def _transforms(self, value: Any, at: FieldPath) -> tuple[FrequencyTransform | None, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.problems.append(
                Problem(at, f"found {shown(value)}", "a list of frequency transforms")
            )
            return ()
        return tuple(self.transform(item, (*at, index)) for index, item in enumerate(value))

    def _option(self, part: Any, option: str, value: Any, at: FieldPath) -> Any:
        from pydantic import ValidationError

        try:
            return _adapter(part, option).validate_python(value, strict=True)
        except ValidationError as error:
            expected = dict.fromkeys(
                detail["msg"].removeprefix("Input should be ") for detail in error.errors()
            )
            self.problems.append(Problem(at, f"found {shown(value)}", " or ".join(expected)))
            return None


def _only(allowed: Container[str], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed options of all layers, later ones over earlier ones."""
    return {
        option: value for layer in layers for option, value in layer.items() if option in allowed
    }


def _unknown_option(
    at: FieldPath, name: str, option: str, mechanism: type[Embedding], allowed: Iterable[str]
) -> Problem:
    if option != TRANSFORMS:
        return unknown_name(at, f"option of {name}", option, sorted(allowed))
    if not mechanism.rotates:
        return Problem(at, f"{name} rotates nothing: it takes no frequency transforms")
    return Problem(
        at,
        f"{name} has its own transforms; for others, write"
        f" {{type: {mechanism.name}, {TRANSFORMS}: […]}}",
    )
