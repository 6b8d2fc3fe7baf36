"""From a mapping to a frozen dataclass, of one kind or of several that have names.

The fields of the dataclass are the options. Their annotations say which values are allowed
(`Interval`), what they mean (`Doc`) and which function parses them (`Parsed`).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar, Union

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.cache import Cache
from fope_lab.config.checks import EachOnce, Parsed
from fope_lab.config.named_types import NamedTypes
from fope_lab.config.problems import (
    ConfigError,
    FieldPath,
    Problem,
    missing,
    name_list,
    shown,
)
from fope_lab.config.words import unknown_word

if TYPE_CHECKING:
    from pydantic import TypeAdapter


T = TypeVar("T")
PositiveInt = Annotated[int, Interval(ge=1)]
Lengths = Annotated[tuple[Annotated[int, Interval(ge=2)], ...], MinLen(1), EachOnce()]
"""Different context lengths in tokens, each at least 2."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """A part of a configuration file: reading it checks its values, each and together."""

    excluded_from_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not in the key: they cannot change results. `from` is there as the parent's
    key."""

    def problems(self) -> Iterable[Problem]:
        """What is wrong with the values together."""
        return ()

    def idle_options(self) -> Mapping[str, str]:
        """The options without effect beside the other values, and why: giving one is wrong."""
        return {}


@dataclass(frozen=True)
class Option:
    """An option: what its value may be, and its default; `MISSING` if it has none."""

    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def doc(self) -> str:
        return next(_docs(self.annotation), "")

    def read(self, value: Any, base: Path | None = None, cache: Cache | None = None) -> Any:
        """The value of the option. Raises ConfigError with every problem of it."""
        try:
            context = {"base": base, "cache": cache}
            return _adapter(self.annotation).validate_python(value, context=context)
        except ValueError as error:  # imported here: a large grid reads many right values
            from pydantic import ValidationError

            from fope_lab.config.pydantic_errors import problems_of

            if not isinstance(error, ValidationError):
                raise
            raise ConfigError(problems_of(error, self.annotation)) from error

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the value, with the description but without the default."""
        # Not cached: literals with the same values in another order count as equal.
        schema = _type_adapter.__wrapped__(_for_pydantic(self.annotation)).json_schema()
        return {**schema, "description": self.doc} if self.doc else schema


def options_of(kind: Any) -> Mapping[str, Option]:
    """The options of a dataclass by name, in the order of its fields."""
    return _options(kind)


@functools.cache  # annotations are compiled from text
def _options(kind: Any) -> Mapping[str, Option]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        option_name(each): Option(hints[each.name], default_of(each))
        for each in dataclasses.fields(kind)
    }


def option_name(of: dataclasses.Field[Any]) -> str:
    """The name that a file gives a field: its own, or that under "option" in its metadata."""
    name: str = of.metadata.get("option", of.name)
    return name


def default_of(of: dataclasses.Field[Any]) -> Any:
    """The default of a field; `MISSING` if it has none."""
    return of.default if of.default_factory is MISSING else of.default_factory()


def summary(kind: type[Any]) -> str:
    """The first paragraph of what a class says about itself, as one line."""
    return " ".join((kind.__doc__ or kind.__name__).strip().split("\n\n")[0].split())


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What a name stands for: options, and `make`, which builds a value of those that are given.

    `title` is what errors call it, such as "corpus c4"; it is empty for a section. `refused` has
    the reason why an option that others have is not one here. `beside` are keys of the same
    mapping that something else reads.
    """

    title: str
    description: str
    options: Mapping[str, Option]
    make: Callable[..., T]
    refused: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        return [name for name, option in self.options.items() if option.required]

    def read(
        self, given: Mapping[str, Any], base: Path | None = None, cache: Cache | None = None
    ) -> T:
        """The value that the given options make; relative paths start from `base`. `cache` has the
        values that other packages parsed before. Raises ConfigError with every problem, and for
        whatever `make` refuses with a ValueError."""
        try:
            made = self.make(**self.values(given, base, cache))
        except ConfigError:
            raise
        except ValueError as error:  # options that do not go together
            raise ConfigError(str(error)) from error
        if isinstance(made, Options):
            idle = {n: why for n, why in made.idle_options().items() if given.get(n) is not None}
            unused = (Problem((name,), f"has no effect: {why}") for name, why in idle.items())
            if problems := [*made.problems(), *unused]:
                raise ConfigError(problems)
        return made

    def values(
        self, given: Mapping[str, Any], base: Path | None = None, cache: Cache | None = None
    ) -> dict[str, Any]:
        """The values of the given options. Raises ConfigError as `read` does."""
        values, problems = self.right_values(given, base, cache)
        if problems:
            raise ConfigError(problems)
        return values

    def right_values(
        self, given: Mapping[str, Any], base: Path | None = None, cache: Cache | None = None
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The values of the options that are right, and what is wrong with the others."""
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self.options:
                problems.append(self._unknown(str(name)))
                continue
            try:
                values[name] = self.options[name].read(value, base, cache)
            except ConfigError as error:
                problems += (problem.under((name,)) for problem in error.problems)
        why = self.title and f"{self.title} needs it"
        problems += [missing((name,), why) for name in self.required if name not in given]
        return values, problems

    def json_schema(self, fixed: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON Schema of a mapping with the options, beside keys whose value is fixed."""
        fixed = fixed or {}
        properties: dict[str, Any] = {key: {"const": value} for key, value in fixed.items()}
        for name, option in self.options.items():
            properties[name] = option.json_schema()
            default = option.default
            if isinstance(default, tuple):
                properties[name]["default"] = list(default)
            elif not (option.required or default is None or dataclasses.is_dataclass(default)):
                properties[name]["default"] = default
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
        what = "option" if self.title else "key"
        return unknown_word((name,), what, name, names, of=self.title)


def entry_of(kind: type[T], title: str = "", preset: T | None = None) -> Entry[T]:
    """The entry of a dataclass; the values of a `preset`, an instance, are its defaults."""
    any_kind: Any = kind  # as a type of its own, mypy takes it for no key of a cache
    if preset is None:
        return _entry_of(any_kind, title)
    known = options_of(any_kind)
    options = {name: Option(known[name].annotation, getattr(preset, name)) for name in known}
    make = functools.partial(dataclasses.replace, preset)  # type: ignore[type-var]
    return Entry(title, summary(kind), options, make)


@functools.cache
def _entry_of(kind: Any, title: str) -> Entry[Any]:
    fields = {option_name(each): each.name for each in dataclasses.fields(kind)}

    def make(**values: Any) -> Any:
        return kind(**{fields[name]: value for name, value in values.items()})

    return Entry(title, summary(kind), options_of(kind), make)


class Registry(Generic[T]):
    """The kinds of one thing by name: parsed, and described in a JSON Schema.

    A description is a name, or a mapping with the name under a key, such as `type`, and options
    beside it: `c4`, `{type: c4, limit: 5}`. A kind may have a shorthand, an option that stands for
    the name: `{files: '*.txt'}`.

    `noun` is what errors call the thing, `key` what a mapping has the name under, and `error` what
    is raised. `presets` are names of instances, whose values are the defaults of the options.
    """

    def __init__(
        self,
        noun: str,
        types: NamedTypes[T],
        *,
        key: str = "type",
        error: type[ConfigError] = ConfigError,
        presets: Mapping[str, T] | None = None,
    ) -> None:
        self.noun, self.key, self._types, self._error = noun, key, types, error
        self._presets = presets or {}
        if presets:
            types.reserve(presets)

    def all_names(self) -> tuple[str, ...]:
        """Every name: those of the kinds, then those of the presets."""
        return tuple(dict.fromkeys((*self._types.all(), *self._presets)))

    def entry(self, name: str) -> Entry[T]:
        if name in self._presets:
            preset = self._presets[name]
            return entry_of(type(preset), self.title(name), preset)
        return entry_of(self._types.all()[name], self.title(name))

    @property
    def entries(self) -> Mapping[str, Entry[T]]:
        return {name: self.entry(name) for name in self.all_names()}

    @property
    def shorthands(self) -> Mapping[str, str]:
        """The name that an option stands for, by option."""
        kinds = self._types.all().items()
        shorthands = {getattr(kind, "shorthand", None): name for name, kind in kinds}
        return {option: name for option, name in shorthands.items() if option}

    def title(self, name: str) -> str:
        return f"{self.noun} {name}"

    def names(self) -> list[str]:
        """The names that need no options."""
        return [name for name, entry in self.entries.items() if not entry.required]

    def parse(
        self,
        value: Any,
        base: Path | None = None,
        at: FieldPath = (),
        beside: tuple[str, ...] = (),
        cache: Cache | None = None,
    ) -> T:
        """The thing that a description stands for; relative paths start from `base`.

        `at` is its path in errors, `beside` are other keys of the same mapping, `cache` has values
        parsed before. Raises the registry's error with every problem.
        """
        try:
            name, options = self._split(value)
            return dataclasses.replace(self.entry(name), beside=beside).read(options, base, cache)
        except ConfigError as error:
            raise self._error(error.problems, at) from error

    def _split(self, value: Any) -> tuple[str, dict[str, Any]]:
        if isinstance(value, str):
            return self._known(value, ()), {}
        if not isinstance(value, Mapping):
            needs = f"the {self.noun}'s name or a mapping with its {self.key}"
            raise ConfigError(Problem((), f"found {shown(value)}", needs))
        options = {str(option): item for option, item in value.items()}
        allowed, needs = tuple(sorted(self.all_names())), f"the {self.noun}'s name"
        if self.key not in options:
            for option, name in self.shorthands.items():
                if option in options:
                    return name, options
            words = (unknown_word((), "", word, [self.key, *self.shorthands]) for word in options)
            known = (word.nearest for word in words if word.nearest)
            problem = missing((self.key,), needs, allowed)
            raise ConfigError(dataclasses.replace(problem, nearest=next(known, None)))
        name = options.pop(self.key)
        if not isinstance(name, str):
            raise ConfigError(Problem((self.key,), f"found {shown(name)}", needs, allowed=allowed))
        return self._known(name, (self.key,)), options

    def _known(self, name: str, at: FieldPath) -> str:
        if name in self.all_names():
            return name
        names = sorted(self.all_names())
        known, bracket, options = name.removesuffix(")").partition("(")
        if not at and bracket and known in names:  # a label, as tables have it
            written = f"{known}, {options}".replace("=", ": ").replace(",", ", ").replace("  ", " ")
            needs = f"a mapping, as in {{{self.key}: {written}}}"
            raise ConfigError(Problem((), f"found {shown(name)}", needs))
        problem = unknown_word(at, self.noun, name, names)
        if "files" in self.shorthands and set("./*") & set(name):
            problem = dataclasses.replace(problem, needs=f"{{files: {name}}} if these are files")
        alone = sorted(self.names())
        with_options = [each for each in names if each not in alone]
        if not at and with_options:  # the name is not inside a mapping
            allowed = (*alone, f"and with options {name_list(with_options)}")
            problem = dataclasses.replace(problem, allowed=allowed)
        raise ConfigError(problem)

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of a description: a name where nothing is required, or a mapping."""
        named = [entry.json_schema({self.key: n}) for n, entry in self.entries.items()]
        short = [self.entries[name].json_schema() for name in self.shorthands.values()]
        return {"anyOf": [{"enum": self.names()}, *named, *short]}


@functools.cache  # a sweep has thousands of values to check
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return _type_adapter(_for_pydantic(annotation))


@functools.cache  # once more: many options differ in their descriptions only
def _type_adapter(annotation: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def _for_pydantic(annotation: Any) -> Any:
    """Tuples take lists, dataclasses mappings; what another package parses is not looked into."""
    from pydantic import Strict

    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        parsed = any(isinstance(each, Parsed) for each in arguments[1:])
        inner = Any if parsed else _for_pydantic(arguments[0])
        checks = [each for each in arguments[1:] if not isinstance(each, Doc)]
        return Annotated[(inner, *checks)] if checks else inner
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_for_pydantic, arguments))]  # noqa: UP007 - of computed members
    if origin is tuple:
        return Annotated[tuple[tuple(map(_for_pydantic, arguments))], Strict(False)]  # type: ignore[misc]
    if origin is dict:
        return dict[_for_pydantic(arguments[0]), _for_pydantic(arguments[1])]  # type: ignore[misc]
    if dataclasses.is_dataclass(annotation):
        return Annotated[Any, nested(annotation)]  # type: ignore[arg-type]
    return annotation


def nested(kind: type[Any]) -> Parsed:
    """The annotation of a value that is a mapping of a dataclass's options."""
    entry = entry_of(kind)

    def parse(value: Any, base: Path) -> Any:
        if not isinstance(value, Mapping):
            raise ConfigError(Problem((), f"found {shown(value)}", "a mapping"))
        return entry.read(value, base)

    return Parsed(parse, entry.json_schema)


def _docs(annotation: Any) -> Iterator[str]:
    for inside in typing.get_args(annotation):
        if isinstance(inside, Doc):
            yield inside.text
        else:
            yield from _docs(inside)
