"""From what a sweep file says to one of several kinds of things that have names.

A description is a name, or a mapping with the name under a key, such as `type`, and options beside
it: `c4`, `{type: c4, limit: 5}`. A kind may have a shorthand, an option that stands for the name:
`{files: '*.txt'}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from fope_lab.config.cache import Cache
from fope_lab.config.named_types import NamedTypes
from fope_lab.config.options import Entry, entry_of
from fope_lab.config.problems import (
    ConfigError,
    FieldPath,
    Problem,
    missing,
    name_list,
    shown,
    unknown_name,
)

T = TypeVar("T")


class Registry(Generic[T]):
    """The kinds of one thing by name: parsed, and described in a JSON Schema.

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
        if self.key not in options:
            for option, name in self.shorthands.items():
                if option in options:
                    return name, options
            raise ConfigError(
                missing((self.key,), f"the {self.noun}'s name", sorted(self.all_names()))
            )
        name = options.pop(self.key)
        if not isinstance(name, str):
            fault, needs = f"found {shown(name)}", f"the {self.noun}'s name"
            allowed = tuple(sorted(self.all_names()))
            raise ConfigError(Problem((self.key,), fault, needs, allowed=allowed))
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
        problem = unknown_name(at, self.noun, name, names)
        alone = sorted(self.names())
        with_options = [each for each in names if each not in alone]
        if not at and with_options:  # there is no mapping around the name
            allowed = (*alone, f"and with options {name_list(with_options)}")
            problem = dataclasses.replace(problem, allowed=allowed)
        raise ConfigError(problem)

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of a description: a name where nothing is required, or a mapping."""
        named = [entry.json_schema({self.key: n}) for n, entry in self.entries.items()]
        short = [self.entries[name].json_schema() for name in self.shorthands.values()]
        return {"anyOf": [{"enum": self.names()}, *named, *short]}
