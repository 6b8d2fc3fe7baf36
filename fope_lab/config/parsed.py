"""The annotation of an option whose value another package parses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Parser(Protocol):
    """Makes a value of what a configuration says. Raises ConfigError."""

    def __call__(self, value: Any, base: Path, /) -> Any:
        """`base` is the folder that relative paths start from."""


@dataclass(frozen=True)
class Parsed:
    """The value is what `parse` returns, and `schema` gives the JSON Schema of what it parses.

    `noun` says what a list of such values is a list of, such as "sources".
    The stages of a grid share the values that are equal, so nobody may change one.
    """

    parse: Parser
    schema: Callable[[], dict[str, Any]]
    noun: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """A validator that calls `parse` with the folder of the validation's context."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: self._parse(value, **(info.context or {}))
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The schema of what is parsed, instead of the annotated type's."""
        return self.schema()

    def _parse(self, value: Any, base: Path | None = None, cache: Any = None) -> Any:
        if base is None:
            return self.parse(value, Path.cwd())
        if cache is None:
            return self.parse(value, base)
        key = (self.parse, base, json.dumps(value, sort_keys=True))
        return cache.get(key, lambda: self.parse(value, base))
