"""From a mapping to a frozen dataclass: its options, their values and their JSON Schema.

The fields of the dataclass are the options. Their annotations say which values are allowed
(`Interval`), what they mean (`Doc`) and which package parses them (`Parsed`).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union

from fope_lab.config.annotations import Doc
from fope_lab.config.parsed import Parsed
from fope_lab.config.problems import ConfigError, Problem, collecting, unknown_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """An option: what its value may be, and its default; `MISSING` if it has none."""

    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether a mapping must give it."""
        return self.default is MISSING

    @property
    def doc(self) -> str:
        """The description of the option; empty where the annotation has none."""
        return next(_docs(self.annotation), "")

    def read(self, value: Any, base: Path | None = None) -> Any:
        """The value of the option. Raises ConfigError with every problem of it."""
        from pydantic import ValidationError

        from fope_lab.config.pydantic_errors import problems_of

        context = None if base is None else {"base": base}
        try:
            return _adapter(self.annotation).validate_python(value, context=context)
        except ValidationError as error:
            raise ConfigError(problems_of(error, self.annotation)) from error

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the value, with the description but without the default."""
        schema = _adapter(self.annotation).json_schema()
        return {**schema, "description": self.doc} if self.doc else schema


def options_of(kind: Any) -> Mapping[str, Option]:
    """The options of a dataclass by name, in the order of its fields."""
    hints = _annotations(kind)
    return {each.name: Option(hints[each.name], each.default) for each in dataclasses.fields(kind)}


@functools.cache
def _annotations(kind: Any) -> Mapping[str, Any]:
    """The annotations of a class. Cached: they are compiled from text each time."""
    return typing.get_type_hints(kind, include_extras=True)


def summary(kind: type[Any]) -> str:
    """The first line of what a class says about itself."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0]


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What a name stands for: options, and `make`, which builds a value of those that are given.

    `title` is what errors call it, such as "corpus c4". `refused` has the reason why an option that
    others have is not one here. `beside` are keys of the same mapping that something else reads.
    """

    title: str
    description: str
    options: Mapping[str, Option]
    make: Callable[..., T]
    refused: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        """The options that have no default."""
        return [name for name, option in self.options.items() if option.required]

    def read(self, given: Mapping[str, Any], base: Path | None = None) -> T:
        """The value that the given options make; relative paths start from `base`.

        Raises ConfigError with every problem: unknown and missing options, wrong values, and
        whatever `make` refuses with a ValueError.
        """
        values = self.values(given, base)
        try:
            return self.make(**values)
        except ConfigError:
            raise
        except ValueError as error:  # options that do not go together
            raise ConfigError(str(error)) from error

    def values(self, given: Mapping[str, Any], base: Path | None = None) -> dict[str, Any]:
        """The values of the given options. Raises ConfigError as `read` does."""
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self.options:
                problems.append(self._unknown(str(name)))
                continue
            with collecting(problems, (name,)):
                values[name] = self.options[name].read(value, base)
        for name in self.required:
            if name not in given:
                problems.append(Problem((name,), f"is missing: {self.title} needs it"))
        if problems:
            raise ConfigError(problems)
        return values

    def json_schema(self, fixed: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON Schema of a mapping with the options, beside keys whose value is fixed."""
        fixed = fixed or {}
        properties: dict[str, Any] = {key: {"const": value} for key, value in fixed.items()}
        for name, option in self.options.items():
            properties[name] = option.json_schema()
            if not (option.required or option.default is None):
                default = option.default
                properties[name]["default"] = (
                    list(default) if isinstance(default, tuple) else default
                )
        return {
            "type": "object",
            "description": self.description,
            "properties": properties,
            "required": [*fixed, *self.required],
            "additionalProperties": False,
        }

    def _unknown(self, name: str) -> Problem:
        if name in self.refused:
            return Problem((name,), self.refused[name])
        names = sorted({*self.options, *self.beside})
        return unknown_name((name,), "option", name, names, of=self.title)


def entry_of(kind: type[T], title: str, preset: T | None = None) -> Entry[T]:
    """The entry of a dataclass; the values of a `preset`, an instance, are its defaults."""
    options = dict(options_of(kind))
    make: Callable[..., T] = kind
    if preset is not None:
        own = {name: getattr(preset, name) for name in options}
        options = {name: Option(options[name].annotation, own[name]) for name in options}
        make = functools.partial(dataclasses.replace, preset)  # type: ignore[type-var]
    return Entry(title, summary(kind), options, make)


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """What checks values. Cached: a sweep has thousands of values to check."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(_for_pydantic(annotation), config=ConfigDict(strict=True))


def _for_pydantic(annotation: Any) -> Any:
    """The annotation for pydantic: a tuple takes a list too, which is what YAML has, and a type
    that another package parses is not looked into."""
    from pydantic import Strict

    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        parsed = any(isinstance(each, Parsed) for each in arguments[1:])
        return Annotated[(Any if parsed else _for_pydantic(arguments[0]), *arguments[1:])]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_for_pydantic, arguments))]  # noqa: UP007 - of computed members
    if origin is tuple:
        return Annotated[tuple[tuple(map(_for_pydantic, arguments))], Strict(False)]  # type: ignore[misc]
    return annotation


def _docs(annotation: Any) -> Iterator[str]:
    """The descriptions in an annotation, also those of the members of a union."""
    for inside in typing.get_args(annotation):
        if isinstance(inside, Doc):
            yield inside.text
        else:
            yield from _docs(inside)
