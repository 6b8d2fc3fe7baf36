"""Stages of other sweep files, named `file.yaml#stage`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.cache import Memo
from fope_lab.config.problems import SweepError, did_you_mean, name_list
from fope_lab.stages.labels import label
from fope_lab.sweep.expand import Cell, same_value
from fope_lab.sweep.graph import Stage

if TYPE_CHECKING:
    from fope_lab.sweep.spec import Sweep


class JoinError(LookupError):
    """No stage of another file fits a cell, or several do."""


class Library:
    """The sweep files that one call of load_sweep reads, each once, and what it remembers."""

    def __init__(self, read: Callable[[Path, Library], Sweep]) -> None:
        self._read = read
        self._known: dict[Path, Sweep | SweepError] = {}
        self._open: list[Path] = []
        self.memo = Memo()

    def sweep(self, path: Path) -> Sweep:
        """The sweep in a file. Raises SweepError, or LookupError for a file that is being read."""
        real = path.resolve()
        if real in self._open:
            if real == self._open[-1]:
                raise LookupError("names this very file; leave out what stands before the #")
            names = [one.name for one in [*self._open[self._open.index(real) :], real]]
            raise LookupError(f"a cycle: {' → '.join(names)}")
        if real not in self._known:
            self._open.append(real)
            try:
                self._known[real] = self._read(path, self)
            except SweepError as error:
                self._known[real] = error
            finally:
                self._open.pop()
        found = self._known[real]
        if isinstance(found, SweepError):
            raise found
        return found


class Foreign:
    """What the sweep file `path` finds in others."""

    def __init__(self, path: Path, library: Library) -> None:
        self._path, self._library = path, library

    def stages(self, reference: str) -> tuple[Stage, ...]:
        """All stages that a reference names. Raises LookupError or that file's SweepError."""
        sweep, name = self._sweep(reference)
        if name not in sweep.by_name:
            names = list(sweep.by_name)
            found = (
                f"has no stage {name!r}{did_you_mean(name, names)}" if name else "names no stage"
            )
            raise LookupError(f"{sweep.path} {found} (allowed: {name_list(names)})")
        return sweep.by_name[name]

    def parent(self, reference: str, cell: Cell) -> Stage:
        """The one stage that a reference means in a cell: joined on the axes and the seed.

        Raises JoinError if there is none, or several; otherwise as `stages`.
        """
        stages = self.stages(reference)
        seeds = sorted({stage.seed for stage in stages if stage.seed is not None})
        if seeds and cell.seed not in seeds:
            raise JoinError(
                f"{reference} has no stage under seed {cell.seed} (allowed: {name_list(seeds)})"
            )
        fitting = {
            stage.key: stage
            for stage in stages
            if stage.seed in (None, cell.seed) and _joins(stage.axes, cell)
        }
        if len(fitting) == 1:
            return next(iter(fitting.values()))
        shared = {
            axis: label(choice.value)
            for axis, choice in cell.choices.items()
            if any(axis in stage.axes for stage in stages)
        }
        chosen = ", ".join(f"{axis} {value}" for axis, value in shared.items()) or "every cell"
        if not fitting:
            raise JoinError(f"{reference} has no stage for {chosen}")
        free = sorted({axis for s in fitting.values() for axis in s.axes} - cell.choices.keys())
        names = name_list(stage.label for stage in fitting.values())
        raise JoinError(
            f"{reference} is ambiguous for {chosen}: {names}; choose in grid by {name_list(free)}"
        )

    def ancestors(self, reference: str, stage: Stage) -> list[Stage]:
        """The stages that a foreign stage needs and itself, parents first."""
        by_key = {other.key: other for other in self._sweep(reference)[0].stages}
        needed = {stage.key}
        for other in reversed(by_key.values()):  # parents come before their children
            if other.key in needed:
                needed.update(other.parents.values())
        return [other for key, other in by_key.items() if key in needed]

    def _sweep(self, reference: str) -> tuple[Sweep, str]:
        given, _, name = reference.rpartition("#")
        file = os.path.expanduser(given)
        folders = list(dict.fromkeys([self._path.parent, self._path.parent.parent, Path.cwd()]))
        path = next((folder / file for folder in folders if os.path.isfile(folder / file)), None)
        if path is None:
            near = did_you_mean(given, _sweep_files(folders))
            raise LookupError(f"no sweep file {given!r} in {name_list(folders)}{near}")
        return self._library.sweep(path), name


def _joins(axes: dict[str, Any], cell: Cell) -> bool:
    return all(
        same_value(cell.choices[axis].value, value)
        for axis, value in axes.items()
        if axis in cell.choices
    )


def _sweep_files(folders: list[Path]) -> list[str]:
    return [str(path.relative_to(folder)) for folder in folders for path in folder.glob("*.yaml")]
