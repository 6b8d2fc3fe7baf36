"""Annotations of an option: how its value is checked (a known name, a text of a form, a list of
different values), or which function parses it (`Parsed`)."""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.problems import ConfigError, Problem, shown, unknown_name


class _Check(ABC):
    """An annotation that pydantic calls with the value, once the value has the annotated type."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """Return the value. Raises ConfigError if it is wrong."""

    def schema(self) -> dict[str, Any]:
        return {}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(schema), **self.schema()}


@dataclass(frozen=True)
class KnownName(_Check):
    """The text must be one of the names that `names` returns; `noun` says what they are names of.

    An error lists `listed` in place of all names, where they are too many.
    """

    noun: str
    names: Callable[[], Iterable[str]]
    listed: tuple[str, ...] | None = None

    def check(self, value: str) -> str:
        names = tuple(self.names())
        if value not in names:
            problem = unknown_name((), self.noun, value, names)
            raise ConfigError(dataclasses.replace(problem, allowed=self.listed or names))
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names())}


@dataclass(frozen=True)
class Pattern(_Check):
    """The whole text must match the regular expression; an error says so in the given words."""

    expression: str
    words: str

    def check(self, value: str) -> str:
        if not re.fullmatch(self.expression, value):
            raise ConfigError(Problem((), f"found {shown(value)}", self.words))
        return value

    def schema(self) -> dict[str, Any]:
        return {"pattern": f"^{self.expression}$"}


@dataclass(frozen=True)
class EachOnce(_Check):
    """The list must name no value twice."""

    def check(self, value: Sequence[Any]) -> Sequence[Any]:
        first: dict[Any, int] = {}
        places = [first.setdefault(item, i) for i, item in enumerate(value)]
        repeated = [i for i, place in enumerate(places) if place != i]
        if repeated:
            raise ConfigError(Problem((i,), f"names {value[i]} twice") for i in repeated)
        return value


@dataclass(frozen=True)
class Parsed:
    """The value is `parse(VALUE, BASE)`, whatever the annotated type; relative paths start from
    BASE. `parse` raises ConfigError for a wrong value. `schema` returns the JSON Schema of what
    `parse` takes; `noun` says what a list of such values is a list of, such as "sources". Equal
    values are parsed once for a whole grid and shared."""

    parse: Callable[[Any, Path], Any]
    schema: Callable[[], dict[str, Any]]
    noun: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: self._parse(value, **(info.context or {}))
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.schema()

    def _parse(self, value: Any, base: Path | None = None, cache: Any = None) -> Any:
        if base is None or cache is None:
            return self.parse(value, base or Path.cwd())
        key = (self.parse, base, json.dumps(value, sort_keys=True))
        return cache.get(key, lambda: self.parse(value, base))
