"""The drafts of a sweep's stages: which sections there are at which grid points, from what parents.

A draft is a section with the values of its axes and a parent, under one seed. The child of a
section with `select` starts from the best of several candidates: the drafts of all values of the
selected axis, under all seeds. `apply_axes` sets a draft's values in its section.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fope_lab.config.cache import Cache
from fope_lab.config.problems import FieldPath, Problem, did_you_mean, format_path, name_list, shown
from fope_lab.model.checkpoint_files import CheckpointError
from fope_lab.model.hub import PREFIX
from fope_lab.stages.labels import label
from fope_lab.sweep.expand import Choice, GridPoint, ProblemCollector, comparable, same_value
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.model_spec import ExternalModel, ModelSpec, read_checkpoint, read_hub_model
from fope_lab.sweep.sweep_file import SweepFile

OTHER_FORMS = "FILE.yaml#STAGE, a checkpoint folder, or hf:NAME@COMMIT"


class OtherFileError(ValueError):
    """`FILE.yaml#STAGE` means no stage, or several: the file, the stage or its axes don't fit."""


@dataclass(frozen=True)
class OtherStages:
    """What `FILE.yaml#STAGE` names: a sweep, and those of its stages that are meant."""

    sweep: Sweep
    stages: tuple[Stage, ...]

    def joined(self, reference: str, point: GridPoint) -> Stage:
        """The stage that fits a point in its axes and seed. Raises OtherFileError."""
        seeds = sorted({stage.seed for stage in self.stages if stage.seed is not None})
        if seeds and point.seed not in seeds:
            fault = f"{reference} has no stage with seed {point.seed}"
            raise OtherFileError(f"{fault} (allowed: {name_list(seeds)})")
        own = point.choices
        matching = {
            stage.key: stage
            for stage in self.stages
            if stage.seed in (None, point.seed)
            and all(same_value(own[a].value, v) for a, v in stage.axes.items() if a in own)
        }
        if len(matching) == 1:
            return next(iter(matching.values()))
        known = {axis for stage in self.stages for axis in stage.axes}
        shared = [f"{a} {label(choice.value)}" for a, choice in own.items() if a in known]
        where = ", ".join(shared) or "every grid point"
        if not matching:
            raise OtherFileError(f"{reference} has no stage for {where}")
        free = sorted({axis for s in matching.values() for axis in s.axes} - own.keys())
        labels = name_list(stage.label for stage in matching.values())
        fault = f"{reference} is ambiguous for {where}: {labels}"
        raise OtherFileError(f"{fault}; choose one in grid by {name_list(free)}")

    def ancestors(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages that one of the stages needs, parents first, and itself."""
        needed = {stage.key}
        for other in reversed(self.sweep.stages):  # children before their parents
            if other.key in needed:
                needed.update(other.parents.values())
        return tuple(other for other in self.sweep.stages if other.key in needed)


@dataclass(frozen=True)
class Parent:
    """What a stage starts from at a grid point: a stage, a model that no stage makes, or nothing.
    `problem` says why there is nothing, unless that is right or reported elsewhere. `memo_key`
    tells parents apart, also equal stages that different axes lead to. `ancestors` are the stages
    of other files that come into the sweep with this parent, itself included."""

    memo_key: Hashable = None
    stage: Stage | None = None
    external: ExternalModel | None = None
    problem: str | None = None
    ancestors: tuple[Stage, ...] = ()

    @property
    def exists(self) -> bool:
        return self.stage is not None or self.external is not None

    @property
    def model_spec(self) -> ModelSpec | None:
        origin = self.stage or self.external
        return origin.model_spec if origin else None


@dataclass(frozen=True, eq=False)
class Candidates:
    """The drafts of a section that one is chosen from, by their numbers in the file's order."""

    numbers: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Draft:
    """A section with choices for its axes, a parent and a seed, and the grid points that share it.
    `origins` tells the choices from those of other drafts. `parent` is the number of a draft,
    candidates of which the best under the seed is the parent, or one from outside the file."""

    section: str
    choices: Mapping[str, Choice]
    origins: Hashable
    parent: int | Candidates | Parent
    seed: int
    points: list[GridPoint] = field(default_factory=list)


class Drafts:
    """Finds the drafts of all grid points, each once: `all`, and the `candidates` among them.
    `others` has the stages of other files by reference; what is missing there has been reported.
    Relative paths start from `folder`."""

    def __init__(
        self,
        file: SweepFile,
        folder: Path,
        others: Mapping[str, OtherStages],
        cache: Cache,
        problems: ProblemCollector,
    ) -> None:
        self.all: list[Draft] = []
        self._file, self._folder, self._others = file, folder, others
        self._cache, self._problems = cache, problems
        self._numbers: dict[Hashable, int] = {}
        self._candidates: dict[Hashable, Candidates] = {}

    @property
    def candidates(self) -> list[Candidates]:
        return list(self._candidates.values())

    def add_point(self, point: GridPoint) -> None:
        """Add the drafts of a grid point, the parent before its children; report cycles."""
        choices: dict[str, dict[str, Choice]] = {}
        for axis, choice in point.choices.items():
            choices.setdefault(axis.partition(".")[0], {})[axis] = choice
        references = {
            name: own[f"{name}.from"].value if f"{name}.from" in own else section.get("from")
            for name, section in self._file.stages.items()
            if isinstance(section, dict)
            for own in [choices.get(name, {})]
        }
        drafted: dict[str, int | Candidates] = {}
        for name in self._parents_first(references, choices, point):
            reference = references[name]
            if isinstance(reference, str) and reference in drafted:
                parent: int | Candidates | Parent = drafted[reference]
            else:
                parent = self._outside(reference, name, point)
            drafted[name] = self._add(name, choices.get(name, {}), parent, point)

    def _add(
        self, name: str, own: Mapping[str, Choice], parent: int | Candidates | Parent, at: GridPoint
    ) -> int | Candidates:
        """Add a section at a grid point; returns what its children start from."""
        came_from = parent.memo_key if isinstance(parent, Parent) else parent
        origins = tuple(sorted((axis, choice.origin) for axis, choice in own.items()))
        key = (name, origins, type(parent), came_from, at.seed)
        is_new = key not in self._numbers
        if is_new:
            self._numbers[key] = len(self.all)
            self.all.append(Draft(name, own, origins, parent, at.seed))
        number = self._numbers[key]
        self.all[number].points.append(at)
        if name not in self._file.selected_axes:
            return number
        group = self._group(number, self._file.selected_axes[name])
        candidates = self._candidates.setdefault(group, Candidates())
        if is_new:
            candidates.numbers.append(number)
        return candidates

    def _group(self, number: int, without: str | None = None) -> Hashable:
        """What a draft has in common with those that differ in their seed and in one axis."""
        draft = self.all[number]
        values = sorted((a, comparable(c.value)) for a, c in draft.choices.items() if a != without)
        before: Hashable = draft.parent
        if isinstance(before, int):
            before = self._group(before)
        elif isinstance(before, Parent):
            stage = before.stage
            before = (stage.section, comparable(stage.axes)) if stage else before.memo_key
        return draft.section, tuple(values), before

    def _parents_first(
        self,
        references: Mapping[str, Any],
        choices: Mapping[str, Mapping[str, Choice]],
        point: GridPoint,
    ) -> list[str]:
        order: dict[str, None] = {}
        for start in references:
            chain: dict[str, None] = {}
            name = start
            while name in references and name not in order and name not in chain:
                chain[name] = None
                name = references[name] if isinstance(references[name], str) else ""
            if name in chain:
                cycle = list(chain)[list(chain).index(name) :]
                choice = choices.get(name, {}).get(f"{name}.from")
                at = choice.origin if choice else ("stages", name, "from")
                problem = Problem(at, f"a cycle: {' → '.join([*cycle, name])}")
                self._problems.add_at_point(point, problem)
            order.update(dict.fromkeys(reversed(chain)))
        return list(order)

    def _outside(self, reference: Any, section: str, point: GridPoint) -> Parent:
        if not isinstance(reference, str) or not reference or reference in self._file.stages:
            return Parent()  # wrong, no mapping or in a cycle: reported where it is checked
        if reference.startswith(PREFIX):
            read = functools.partial(read_hub_model, reference)
        elif "#" in reference:
            return self._in_other_file(reference, point)
        elif "/" in reference or os.path.exists(self._folder / reference):
            read = functools.partial(read_checkpoint, reference, self._folder)
        else:
            names = [name for name in self._file.stages if name != section]
            return Parent(
                problem=f"no stage named {reference!r} in this file"
                f"{did_you_mean(reference, names)} (allowed: {name_list([*names, OTHER_FORMS])})"
            )
        try:
            model = self._cache.get(("model", reference, self._folder), read)
        except CheckpointError as error:
            return Parent(problem=str(error))
        return Parent(model.key, external=model)

    def _in_other_file(self, reference: str, point: GridPoint) -> Parent:
        other = self._others.get(reference)
        if other is None:
            return Parent()  # reported where the file was read
        try:
            stage = other.joined(reference, point)
        except OtherFileError as error:
            return Parent(problem=str(error) if self._problems.axes_known else None)
        memo_key = (stage.key, comparable(stage.axes))
        return Parent(memo_key, stage, ancestors=other.ancestors(stage))


@dataclass(frozen=True, eq=False)
class StageFields:
    """A stage's section at a grid point, with the values of `axes` set. `origins` has the place in
    the file of every value that an axis set, by its path, and `created` that of sections made
    around such a value. `problems` are the axes that could not be set. A section equals itself
    alone, as a key of a cache."""

    name: str
    fields: dict[str, Any]
    axes: Mapping[str, Any]
    origins: Mapping[FieldPath, FieldPath]
    created: Mapping[FieldPath, FieldPath]
    problems: tuple[Problem, ...]

    def locate(self, path: FieldPath) -> FieldPath:
        """Return the place in the file of a path inside the section."""
        if path in self.created:
            return self.created[path]
        for size in range(len(path), 0, -1):
            if path[:size] in self.origins:
                return (*self.origins[path[:size]], *path[size:])
        return ("stages", self.name, *path)


def apply_axes(name: str, section: Mapping[str, Any], choices: Mapping[str, Choice]) -> StageFields:
    """Return the section `name` with the values that `choices` has for its axes. Whole objects are
    set before the paths inside them, whatever the order in the file. A preset's name becomes {type:
    name} when an axis sets an option of it."""
    fields: dict[str, Any] = _copy(section)
    origins: dict[FieldPath, FieldPath] = {}
    created: dict[FieldPath, FieldPath] = {}
    problems = []
    for axis, choice in sorted(choices.items(), key=lambda item: item[0].count(".")):
        try:
            path, sections = _set(fields, axis.split(".")[1:], _copy(choice.value))
        except LookupError as error:
            problems.append(Problem(choice.origin, str(error)))
        else:
            origins[path] = choice.origin
            created |= dict.fromkeys(sections - created.keys(), choice.origin)
    axes = {axis: choice.value for axis, choice in choices.items()}
    return StageFields(name, fields, axes, origins, created, tuple(problems))


def _set(
    section: dict[str, Any], dotted: list[str], value: Any
) -> tuple[FieldPath, set[FieldPath]]:
    """Set a field; returns its path and the sections created. Raises LookupError if it can't be."""
    target: Any = section
    path: FieldPath = ()
    created: set[FieldPath] = set()
    for depth, part in enumerate(dotted):
        key = _index(part, target, path) if isinstance(target, list) else part
        path = (*path, key)
        if depth == len(dotted) - 1:
            target[key] = value
            break
        old = target.get(key) if isinstance(target, dict) else target[key]
        if old is None:
            if dotted[depth + 1].isdecimal():
                raise LookupError(f"{format_path(path)} is not a list, so it has no items")
            created.add(path)
        target[key] = _with_fields(old, path)
        target = target[key]
    return path, created


def _index(part: str, items: list[Any], path: FieldPath) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    allowed = f"0 to {len(items) - 1}" if items else "none"
    raise LookupError(
        f"{format_path(path)} is a list without an item {part!r} (allowed: {allowed})"
    )


def _with_fields(value: Any, path: FieldPath) -> dict[str, Any] | list[Any]:
    """The value in a form whose fields can be set. Raises LookupError."""
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
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
