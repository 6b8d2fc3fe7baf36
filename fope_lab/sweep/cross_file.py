"""Stages of other sweep files, which a `from` refers to as `file.yaml#stage`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import Problem, SweepError, did_you_mean, name_list
from fope_lab.stages.labels import label
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.grid_point import GridPoint, same_value
from fope_lab.sweep.local_corpora import LocalCorpora
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.sweep_file import SweepFile


class JoinError(LookupError):
    """No stage of another file matches a grid point, or several stages do."""


class SweepLoader:
    """Reads each sweep file once, and shares one cache between the files.

    `read` makes a sweep of a file; it asks this loader for the files that the file refers to.
    `store` knows what corpora held whose files are gone.
    """

    def __init__(
        self, read: Callable[[Path, SweepLoader], Sweep], store: Store | None = None
    ) -> None:
        self._read = read
        self._results: dict[Path, Sweep | SweepError] = {}
        self._open: list[Path] = []
        self.cache = Cache()
        self.corpora = LocalCorpora(store)

    def load(self, path: Path) -> Sweep:
        """Return the sweep in a file.

        Raises SweepError, and LookupError for a file that is still being read: a cycle.
        """
        real = path.resolve()
        if real in self._open:
            if real == self._open[-1]:
                raise LookupError("this is the file itself; leave out the part before the #")
            names = [file.name for file in [*self._open[self._open.index(real) :], real]]
            raise LookupError(f"a cycle: {' → '.join(names)}")
        if real not in self._results:
            self._open.append(real)
            try:
                self._results[real] = self._read(path, self)
            except SweepError as error:
                self._results[real] = error
            finally:
                self._open.pop()
        result = self._results[real]
        if isinstance(result, SweepError):
            raise result
        return result


class StageReferences:
    """Finds the stages that the sweep file `path` refers to in other files."""

    def __init__(self, path: Path, loader: SweepLoader) -> None:
        self._path, self._loader = path, loader

    def stages(self, reference: str) -> tuple[Stage, ...]:
        """Return all stages that a reference names: of a section with `select` the chosen ones.

        Raises LookupError if there are none, and the SweepError of the other file.
        """
        sweep, name = self._sweep(reference)
        if name not in sweep.by_section:
            names = list(sweep.by_section)
            fault = (
                f"{sweep.path} has no stage {name!r}{did_you_mean(name, names)}"
                if name
                else f"needs a stage of {sweep.path} after the #"
            )
            raise LookupError(f"{fault} (allowed: {name_list(names)})")
        return sweep.selected.get(name) or sweep.by_section[name]

    def parent(self, reference: str, point: GridPoint) -> Stage:
        """Return the stage that a reference means at a grid point.

        Raises JoinError if no stage matches the point's axes and seed, or several do; otherwise as
        `stages`.
        """
        return _join(reference, self.stages(reference), point)

    def ancestors(self, reference: str, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages that a stage of another file needs, parents first, and itself."""
        by_key = {other.key: other for other in self._sweep(reference)[0].stages}
        needed = {stage.key}
        for other in reversed(by_key.values()):  # parents come before their children
            if other.key in needed:
                needed.update(other.parents.values())
        return tuple(other for key, other in by_key.items() if key in needed)

    def axes(self, file: SweepFile, problems: ProblemCollector) -> dict[str, list[Any]]:
        """Return the axes, with their values, of all stages that `file` refers to in other files.

        References that name no stage are reported, as are the problems of the other files.
        """
        axes: dict[str, list[Any]] = {}
        for at, reference in file.references():
            if not isinstance(reference, str) or "#" not in reference:
                continue
            try:
                stages = self.stages(reference)
            except SweepError as error:
                problems.add(*error.problems)
            except LookupError as error:
                problems.add(Problem(at, str(error.args[0])))
            else:
                for axis, value in (item for stage in stages for item in stage.axes.items()):
                    values = axes.setdefault(axis, [])
                    if not any(same_value(value, known) for known in values):
                        values.append(value)
        return axes

    def _sweep(self, reference: str) -> tuple[Sweep, str]:
        given, _, name = reference.rpartition("#")
        file = os.path.expanduser(given)
        folders = list(dict.fromkeys([self._path.parent, self._path.parent.parent, Path.cwd()]))
        path = next((folder / file for folder in folders if os.path.isfile(folder / file)), None)
        if path is None:
            near = did_you_mean(given, _sweep_files(folders))
            raise LookupError(f"no sweep file {given!r} in {name_list(folders)}{near}")
        return self._loader.load(path), name


def _join(reference: str, stages: Sequence[Stage], point: GridPoint) -> Stage:
    """Return the stage that matches a grid point in all axes and in the seed that both have."""
    seeds = sorted({stage.seed for stage in stages if stage.seed is not None})
    if seeds and point.seed not in seeds:
        raise JoinError(
            f"{reference} has no stage with seed {point.seed} (allowed: {name_list(seeds)})"
        )
    matching = {
        stage.key: stage
        for stage in stages
        if stage.seed in (None, point.seed) and _matches(stage.axes, point)
    }
    if len(matching) == 1:
        return next(iter(matching.values()))
    shared = {
        axis: label(choice.value)
        for axis, choice in point.choices.items()
        if any(axis in stage.axes for stage in stages)
    }
    where = ", ".join(f"{axis} {value}" for axis, value in shared.items()) or "every grid point"
    if not matching:
        raise JoinError(f"{reference} has no stage for {where}")
    free = sorted({axis for s in matching.values() for axis in s.axes} - point.choices.keys())
    labels = name_list(stage.label for stage in matching.values())
    raise JoinError(
        f"{reference} is ambiguous for {where}: {labels}; choose one in grid by {name_list(free)}"
    )


def _matches(axes: Mapping[str, Any], point: GridPoint) -> bool:
    return all(
        same_value(point.choices[axis].value, value)
        for axis, value in axes.items()
        if axis in point.choices
    )


def _sweep_files(folders: Sequence[Path]) -> list[str]:
    return [str(path.relative_to(folder)) for folder in folders for path in folder.glob("*.yaml")]
