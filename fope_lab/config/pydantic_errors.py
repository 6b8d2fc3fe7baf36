"""pydantic's errors as problems, by their type and context: the words are all our own."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from fope_lab.config.problems import ConfigError, FieldPath, Problem, missing, shown
from fope_lab.config.words import unknown_word

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

NEEDS: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing_size"), "a whole number"),
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_unicode": "text",
    "bool_type": "true or false",
    "none_required": "nothing",
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "dict_type": "a mapping",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "string_too_short": "text that is not empty",
}
"""What a value needs to be right, by the type of pydantic's error; names in braces are in the
error's context."""


def problems_of(error: ValidationError, annotation: Any) -> list[Problem]:
    """Every problem of a value that pydantic checked; what members of a union need is joined."""
    problems: list[Problem] = []
    details = error.errors()
    for detail in details:
        if detail["type"] == "too_short" and any(
            other["loc"][: len(detail["loc"])] == detail["loc"] and other is not detail
            for other in details
        ):
            continue  # pydantic counts only the items that were right
        for problem in _problems(detail, annotation):
            problems[-1:] = _joined(problems[-1:], problem)
    return problems


def _joined(last: list[Problem], problem: Problem) -> list[Problem]:
    needs = [last[0].needs if last else None, problem.needs]
    if None in needs or dataclasses.replace(last[0], needs=problem.needs) != problem:
        return [*last, problem]
    either = " or ".join(dict.fromkeys(filter(None, needs)))
    return [dataclasses.replace(problem, needs=either)]


def _problems(detail: ErrorDetails, annotation: Any) -> Iterator[Problem]:
    path, expected = _place(annotation, detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "value_error":
        cause = context["error"]
        problems = cause.problems if isinstance(cause, ConfigError) else [Problem((), str(cause))]
        yield from (problem.under(path) for problem in problems)
    elif kind == "missing":  # an item of a list of fixed length
        yield missing(path)
    elif kind == "literal_error":
        literals = (m for m in _members(expected) if typing.get_origin(m) is Literal)
        names = [str(name) for literal in literals for name in typing.get_args(literal)]
        found = unknown_word(path, "name", detail["input"], names)
        yield dataclasses.replace(found, fault=f"found {shown(detail['input'])}")
    else:
        # A type that is not in NEEDS is a rule that no annotation had when this was written.
        needs = NEEDS.get(kind, kind.replace("_", " "))
        needs += _of_what(expected) if needs == "a list" else ""
        values = {name: _amount(name, value) for name, value in context.items()}
        yield Problem(path, f"found {shown(detail['input'])}", needs.format(**values))


def _of_what(annotation: Any) -> str:
    items = [item for list_type in _members(annotation) for item in _inside(list_type, 0)]
    nouns = (getattr(each, "noun", "") for item in items for each in typing.get_args(item)[1:])
    return "".join(f" of {noun}" for noun in nouns if noun)


def _amount(name: str, value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if name in ("min_length", "max_length"):
        return "one entry" if value == 1 else f"{value} entries"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _place(annotation: Any, location: tuple[str | int, ...]) -> tuple[FieldPath, Any]:
    """The path and annotation; pydantic's location also has "[key]" and a union's members."""
    path: FieldPath = ()
    for part in location:
        if part == "[key]":
            continue
        inner = next((a for m in _members(annotation) for a in _inside(m, part)), None)
        if inner is None and len(_members(annotation)) > 1:
            continue
        path, annotation = (*path, part), inner
    return path, annotation


def _members(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [m for arg in typing.get_args(annotation) for m in _members(arg)]
    return [annotation] if annotation is not type(None) else []


def _inside(kind: Any, part: str | int) -> Iterator[Any]:
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    if isinstance(part, int):
        if origin is tuple and Ellipsis not in arguments:
            yield from arguments[part : part + 1]
        elif origin in (tuple, list):
            yield arguments[0]
    elif origin is dict:
        yield arguments[1]
