"""The problems of stages over all cells of a grid, each told once, with the cells it is in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from fope_lab.config.problems import FieldPath, Problem
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label
from fope_lab.sweep.expand import Cell

ALTERNATIVES = ("grid", "zip")
"""The sections in which the values of one axis stand in a list."""


class Findings:
    """Collects what is wrong, where in the file, and in which cells."""

    def __init__(self, document: Document, cells: Sequence[Cell]) -> None:
        self._document, self._cells = document, cells
        self._found: dict[tuple[FieldPath, str], list[Cell]] = {}
        self._all_values: dict[str, set[str]] = {}

    def add(self, at: FieldPath, message: str, cell: Cell) -> None:
        """One problem in one cell."""
        self._found.setdefault((at, message), []).append(cell)

    def problems(self) -> Iterator[Problem]:
        """Every problem; what is not the same for all cells says for which values of which axes.

        What is wrong with every value of an axis in the same words, as a misspelt path is, is one
        problem of the axis.
        """
        of_axis: dict[tuple[FieldPath, str], dict[FieldPath, list[Cell]]] = {}
        for (at, message), cells in self._found.items():
            place = at[:2] if at[0] in ALTERNATIVES and len(at) == 3 else at
            of_axis.setdefault((place, message), {})[at] = cells
        for (place, message), places in of_axis.items():
            at = place if len(places) > 1 else next(iter(places))
            cells = [cell for found in places.values() for cell in found]
            text = f"{message}{self._only(at, cells)}"
            yield self._document.locate(Problem(at, text))

    def _only(self, at: FieldPath, cells: Sequence[Cell]) -> str:
        """The values of the axes that tell these cells from the others, unless `at` tells them."""
        if at[0] == "include":
            return ""
        known = (
            {axis for axis in cells[0].choices if cells[0].choices[axis].origin[0] == "zip"}
            if at[0] == "zip"
            else {at[1]}
        )
        parts = []
        for axis in cells[0].choices:
            if axis in known:
                continue
            if axis not in self._all_values:
                self._all_values[axis] = set(_values(axis, self._cells))
            here = _values(axis, cells)
            if here.keys() != self._all_values[axis]:
                parts.append(f"{axis} {', '.join(here.values())}")
        return f" (with {'; '.join(parts)})" if parts else ""


def _values(axis: str, cells: Sequence[Cell]) -> dict[str, str]:
    """The labels of an axis's values in these cells, by what tells values apart."""
    return {
        json.dumps(cell.choices[axis].value, sort_keys=True): label(cell.choices[axis].value)
        for cell in cells
        if axis in cell.choices
    }
