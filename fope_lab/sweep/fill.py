"""A stage's section in one cell of the grid: the file's, with the cell's values set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.sweep.expand import Cell
from fope_lab.sweep.problems import FieldPath, shown


@dataclass(frozen=True)
class Filled:
    """A stage's section in one cell.

    `origins` says where in the file the value of every path that an axis set stands; `problems` are
    axes that could not be set, each with its place in the file.
    """

    stage: str
    value: dict[str, Any]
    origins: Mapping[FieldPath, FieldPath]
    problems: tuple[tuple[FieldPath, str], ...]

    def locate(self, path: FieldPath) -> FieldPath:
        """The place in the file of a path inside the section."""
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
    problems = []
    own = [(axis.split("."), choice) for axis, choice in cell.choices.items()]
    for (name, *dotted), choice in sorted(own, key=lambda item: len(item[0])):
        if name != stage:
            continue
        path, message = _set(value, dotted, _copy(choice.value))
        if message:
            problems.append((choice.origin, message))
        else:
            origins[path] = choice.origin
    return Filled(stage, value, origins, tuple(problems))


def _set(section: dict[str, Any], dotted: list[str], value: Any) -> tuple[FieldPath, str | None]:
    """Set what a dotted path names: its path with the indices of lists as numbers, and what is
    wrong, if anything."""
    target: Any = section
    path: FieldPath = ()
    for depth, part in enumerate(dotted):
        here = ".".join(dotted[:depth])
        key: str | int = part
        if isinstance(target, list):
            if not (part.isdecimal() and int(part) < len(target)):
                allowed = f"0 to {len(target) - 1}" if target else "none"
                return path, f"{here} is a list without an item {part!r} (allowed: {allowed})"
            key = int(part)
        path = (*path, key)
        if depth == len(dotted) - 1:
            target[key] = value
            break
        old = target.get(key) if isinstance(target, dict) else target[key]
        inner = _opened(old, path)
        if inner is None:
            return path, f"{here and here + '.'}{part} is {shown(old)}, which has no fields"
        target[key] = inner
        target = inner
    return path, None


def _opened(value: Any, path: FieldPath) -> dict[str, Any] | list[Any] | None:
    """A value as one whose fields can be set; None for a plain number or word."""
    if isinstance(value, dict | list):
        return value
    if value is None:
        return {}
    if isinstance(value, str) and path == ("model",):
        return {"scale": value}
    if isinstance(value, str) and {"embedding", "corpus"} & set(path):
        return {"type": value}
    return None


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
