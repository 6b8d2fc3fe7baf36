"""A stage's section in one cell of the grid: the file's, with the cell's values set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import FieldPath, format_path, shown
from fope_lab.sweep.expand import Cell


@dataclass(frozen=True)
class Filled:
    """A stage's section in one cell.

    `origins` says where in the file the value of every path that an axis set stands, `made` the
    same of sections that were not there before; `problems` are axes that could not be set, each
    with its place in the file.
    """

    stage: str
    value: dict[str, Any]
    origins: Mapping[FieldPath, FieldPath]
    made: Mapping[FieldPath, FieldPath]
    problems: tuple[tuple[FieldPath, str], ...]

    def locate(self, path: FieldPath) -> FieldPath:
        """The place in the file of a path inside the section."""
        if path in self.made:
            return self.made[path]
        for size in range(len(path), 0, -1):
            if path[:size] in self.origins:
                return (*self.origins[path[:size]], *path[size:])
        return ("stages", self.stage, *path)


def fill(stage: str, section: Mapping[str, Any], cell: Cell) -> Filled:
    """A stage's section in a cell.

    Whole objects are set before the dotted paths inside them, so that the order of the axes in the
    file does not matter. A preset's name becomes {type: name} when an option of it is set.
    """
    value: dict[str, Any] = _copy(section)
    origins: dict[FieldPath, FieldPath] = {}
    made: dict[FieldPath, FieldPath] = {}
    problems = []
    own = [(axis.split("."), choice) for axis, choice in cell.choices.items()]
    for (name, *dotted), choice in sorted(own, key=lambda item: len(item[0])):
        if name != stage:
            continue
        try:
            path, new = _set(value, dotted, _copy(choice.value))
        except LookupError as error:
            problems.append((choice.origin, str(error)))
        else:
            origins[path] = choice.origin
            made |= dict.fromkeys(new - made.keys(), choice.origin)
    return Filled(stage, value, origins, made, tuple(problems))


def _set(
    section: dict[str, Any], dotted: list[str], value: Any
) -> tuple[FieldPath, set[FieldPath]]:
    """Set what a dotted path names.

    Returns the path, with the indices of lists as numbers, and the paths of the sections that had
    to be made. Raises LookupError.
    """
    target: Any = section
    path: FieldPath = ()
    made: set[FieldPath] = set()
    for depth, part in enumerate(dotted):
        key = _index(part, target, path) if isinstance(target, list) else part
        path = (*path, key)
        if depth == len(dotted) - 1:
            target[key] = value
            break
        old = target.get(key) if isinstance(target, dict) else target[key]
        if old is None:
            if dotted[depth + 1].isdecimal():
                raise LookupError(f"{format_path(path)} is no list, so it has no items")
            made.add(path)
        target[key] = _opened(old, path)
        target = target[key]
    return path, made


def _index(part: str, items: list[Any], path: FieldPath) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    allowed = f"0 to {len(items) - 1}" if items else "none"
    raise LookupError(
        f"{format_path(path)} is a list without an item {part!r} (allowed: {allowed})"
    )


def _opened(value: Any, path: FieldPath) -> dict[str, Any] | list[Any]:
    """A value as one whose fields can be set. Raises LookupError for a plain number or word."""
    if isinstance(value, dict | list):
        return value
    if value is None:
        return {}
    if isinstance(value, str) and path == ("model",):
        return {"scale": value}
    if isinstance(value, str) and {"embedding", "corpus", "over", "analysis"} & set(path):
        return {"type": value}
    raise LookupError(f"{format_path(path)} is {shown(value)}, which has no fields")


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
