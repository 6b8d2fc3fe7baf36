"""pydantic's errors in our words, with the nearest right name."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fope_lab.config.problems import FieldPath, did_you_mean, name_list, shown

WORDS = tuple(
    (re.compile(theirs), ours)
    for theirs, ours in (
        (r"Input should be ", ""),
        (r"^Value error, ", ""),
        (r"(?:a )?valid integer(?:, got .*)?", "a whole number"),
        (r"(?:a )?valid number", "a number"),
        (r"(?:a )?finite number", "a finite number"),
        (r"(?:a )?valid string", "text"),
        (r"(?:a )?valid boolean", "true or false"),
        (r"(?:a )?valid (?:list|tuple|array)", "a list"),
        (r"(?:a )?valid dictionary(?: or instance of \w+)?|an object", "a mapping"),
        (r"greater than or equal to (\S+)", r"at least \1"),
        (r"less than or equal to (\S+)", r"at most \1"),
        (r"greater than (\S+)", r"more than \1"),
        (r"(?:List|Tuple|Dictionary) should have at (\w+) 1 item\b.*", r"at \1 one entry"),
        (r"(?:List|Tuple|Dictionary) should have at (\w+) (\d+) items\b.*", r"at \1 \2 entries"),
        (r"String should have at least 1 character", "text that is not empty"),
        (r"^found None\b", "found nothing"),
        (r"^found True\b", "found true"),
        (r"^found False\b", "found false"),
    )
)
"""What pydantic calls a rule, and what we call it."""


class SectionError(ValueError):
    """What a section's own parser found: (path inside the section, message) for each problem."""

    def __init__(self, found: list[tuple[FieldPath, str]]) -> None:
        self.found = found
        super().__init__("; ".join(message for _, message in found))


def reworded(rule: str) -> str:
    """pydantic's text of a rule, or a text that quotes one, in our words."""
    for theirs, ours in WORDS:
        rule = theirs.sub(ours, rule)
    return rule


def messages_of(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[FieldPath, str]]:
    """Every problem in `error`: its path inside `model`, and the message."""
    details = error.errors()
    for detail in details:
        if detail["type"] == "too_short" and any(
            other["loc"][: len(detail["loc"])] == detail["loc"] and other is not detail
            for other in details
        ):
            continue  # pydantic counts only the items that were right
        path: FieldPath = tuple(part for part in detail["loc"] if part != "[key]")
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, SectionError):
            yield from (((*path, *inner), message) for inner, message in cause.found)
        else:
            yield path, _message(detail, path, model)


def _message(detail: ErrorDetails, path: FieldPath, model: type[BaseModel]) -> str:
    found = detail["input"]
    if detail["type"] == "extra_forbidden":
        allowed = _fields(model, path[:-1])
        near = did_you_mean(path[-1], allowed)
        return f"unknown key {path[-1]!r}{near} (allowed: {name_list(allowed)})"
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "literal_error":
        allowed = [str(name) for name in typing.get_args(_type_at(model, path))]
        return f"found {shown(found)}{did_you_mean(found, allowed)} (allowed: {name_list(allowed)})"
    if detail["type"] == "value_error":
        return reworded(detail["msg"])
    return f"found {shown(found)}, needs {reworded(detail['msg'])}"


def _fields(model: type[BaseModel], path: FieldPath) -> list[str]:
    """The keys that the section at `path` may hold."""
    section = _type_at(model, path)
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return []
    outside: Collection[str] = getattr(section, "outside_file", ())
    fields = section.model_fields.items()
    return [field.alias or name for name, field in fields if name not in outside]


def _type_at(model: type[BaseModel], path: FieldPath) -> Any:
    """The type of the field at `path`, or of an item of a list."""
    current: Any = model
    for part in path:
        if isinstance(part, int) and typing.get_origin(current) is tuple:
            current = typing.get_args(current)[0]
            continue
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return None
        by_name = {field.alias or name: field for name, field in current.model_fields.items()}
        if part not in by_name:
            return None
        current = by_name[str(part)].annotation
    return current
