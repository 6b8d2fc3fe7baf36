"""Which stages of a sweep measure what a claim, a table or a figure names, and which of these a
claim compares: the values of its terms on an axis, and what is pinned.

An axis that varies together with the compared one, such as an axis zipped with it, adds no
combinations: the claim compares the models as the sweep pairs them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.stages.labels import axis_label, corpus_label, is_embedding, label_parts
from fope_lab.stages.metric import Metric, number_metric
from fope_lab.sweep.claims.statement import ClaimError, Pin, Quantity
from fope_lab.sweep.graph import Stage

Measuring = list[tuple[Stage, Metric]]


@dataclass(frozen=True)
class Measured:
    """One metric of one section, with the stages that measure it, over axes and seeds, each with
    its own metric; `metric` is that of the first.

    `mastery` shows whether a model has learned the task, where it may fail to. `declared` has what
    every one of these stages measures, by short name.
    """

    stage: str
    metric: Metric
    mastery: Metric | None
    measuring: tuple[tuple[Stage, Metric], ...]
    declared: Mapping[str, Metric]

    @functools.cached_property
    def xs(self) -> tuple[int, ...]:
        """Every point of the curve; none of a single number."""
        return tuple(sorted({x for _, metric in self.measuring for x in metric.xs or ()}))

    @property
    def few_xs(self) -> str:
        """Some points of the curve, the ends among them."""
        xs = self.xs
        return name_list(xs) if len(xs) <= 12 else f"{name_list(xs[:3])}, …, {xs[-1]}"

    def at(self, x: int | None) -> tuple[Stage, ...]:
        """Return the stages that measure it at x. Raises ClaimError if none does."""
        if found := self._stages_by_x.get(x):
            return found
        name, points = self.metric.short_name, self.few_xs
        if not self.xs:
            raise ClaimError(f"{name} is a single number, and has no @{x}")
        if x is None:
            raise ClaimError(f"{name} is a curve; needs @x, one of {points}")
        raise ClaimError(f"{self.stage} does not measure {name} at {x} (at: {points})")

    def other(self, name: str, x: int | None) -> Metric:
        """Return another metric or number of these stages at x. Raises ClaimError."""
        metric = self.declared.get(name)
        if metric is None:
            near = did_you_mean(name, list(self.declared))
            allowed = name_list(self.declared)
            raise ClaimError(f"{self.stage} does not measure {name!r}{near} (allowed: {allowed})")
        if (metric.xs is None) != (x is None):
            raise ClaimError(f"{name} and {self.metric.short_name} have no point in common")
        if x is not None and x not in (metric.xs or ()):
            raise ClaimError(f"{self.stage} does not measure {name} at {x}")
        return metric

    @functools.cached_property
    def _stages_by_x(self) -> Mapping[int | None, tuple[Stage, ...]]:
        found: dict[int | None, list[Stage]] = {}
        for stage, metric in self.measuring:
            for x in (None,) if metric.xs is None else dict.fromkeys(metric.xs):
                found.setdefault(x, []).append(stage)
        return {x: tuple(stages) for x, stages in found.items()}


class Catalogue:
    """What the stages of a sweep measure; `by_section` are the stages of each name in the file."""

    def __init__(self, by_section: Mapping[str, Sequence[Stage]]) -> None:
        self._by_section: Mapping[str, Sequence[tuple[Stage, Sequence[Metric]]]] = {
            name: [(stage, _declared(stage)) for stage in stages]
            for name, stages in by_section.items()
        }
        self._found: dict[Quantity, Measured] = {}

    def find(self, quantity: Quantity, *, in_table: bool = False) -> Measured:
        """Return the stages that a quantity names; `in_table` asks for what tables show. Raises
        ClaimError for none, for several, and for a number that no table shows."""
        if quantity not in self._found:
            self._found[quantity] = self._find(quantity)
        if in_table and self._found[quantity].metric.is_number:
            raise ClaimError(f"{quantity} is a number of an analysis, which no table or figure has")
        return self._found[quantity]

    def _find(self, quantity: Quantity) -> Measured:
        if quantity.stage is not None and quantity.stage not in self._by_section:
            near = did_you_mean(quantity.stage, list(self._by_section))
            allowed = name_list(self._by_section)
            raise ClaimError(f"no stage {quantity.stage!r}{near} (allowed: {allowed})")
        names = [*self._by_section] if quantity.stage is None else [quantity.stage]
        having: dict[str, Measuring] = {}
        known: dict[str, None] = {}
        for name in names:
            for stage, metrics in self._by_section[name]:
                for metric in metrics:
                    known[metric.short_name] = None
                    if quantity.metric in (metric.short_name, metric.name):
                        having.setdefault(name, []).append((stage, metric))
        if not having:
            near = did_you_mean(quantity.metric, list(known))
            one = f"stage {quantity.stage} does not measure"
            who = "no stage measures" if quantity.stage is None else one
            raise ClaimError(f"{who} {quantity.metric!r}{near} (allowed: {name_list(known)})")
        if quantity.corpus is not None:
            having = _of_corpus(having, quantity)
        if len(having) > 1:
            said = Quantity(quantity.metric, next(iter(having)), quantity.corpus)
            raise ClaimError(
                f"{' and '.join(having)} measure {quantity.metric}; name one, as in {said}"
            )
        [(name, measuring)] = having.items()
        first, declared = measuring[0][1], [_declared(stage) for stage, _ in measuring]
        mastery = next((one for one in declared[0] if one.name == first.mastery), None)
        common = set.intersection(*({metric.short_name for metric in one} for one in declared))
        by_name = {one.short_name: one for one in declared[0] if one.short_name in common}
        return Measured(name, first, mastery, tuple(measuring), by_name)


def _declared(stage: Stage) -> list[Metric]:
    """The metrics of a stage, and the numbers of an analysis."""
    return [*stage.spec.metrics(), *map(number_metric, stage.spec.number_names())]


def _of_corpus(having: Mapping[str, Measuring], quantity: Quantity) -> dict[str, Measuring]:
    """The stages whose metric is measured on the corpus. Raises ClaimError for none."""
    labels: dict[str, None] = {}
    found: dict[str, Measuring] = {}
    for name, measuring in having.items():
        for stage, metric in measuring:
            if metric.corpus is not None:
                labels[label := corpus_label(metric.corpus)] = None
                if label == quantity.corpus:
                    found.setdefault(name, []).append((stage, metric))
    if not labels:
        raise ClaimError(
            f"{quantity.metric} is not measured on a corpus; leave out ({quantity.corpus})"
        )
    if not found:
        near = did_you_mean(quantity.corpus, list(labels))
        raise ClaimError(
            f"no stage measures {quantity.metric} on {shown(quantity.corpus)}{near}"
            f" (allowed: {name_list(labels)})"
        )
    return found


Stages = Sequence[Stage]


@dataclass(frozen=True)
class StageGroup:
    """The stages of each term for one combination, `axes` by path, of the axes left open."""

    axes: Mapping[str, Any]
    members: tuple[list[Stage], ...]


def group_stages(
    terms: Sequence[Pin], where: Sequence[Pin], measuring: Stages, along: str | None = None
) -> tuple[Sequence[str], Sequence[StageGroup]]:
    """Group the stages that measure something by the axes that a claim leaves open.

    Returns the terms as a reader should see them, a number with its axis as `batch_tokens=128`, and
    the groups. Without terms, each group has all of its stages as the only member. `along` is the
    path of an axis that the claim runs along: neither compared nor left open. Raises ClaimError.
    """
    stages = pinned(where, measuring)
    used = [] if along is None else [along]
    axis, chosen = "", [""]
    if terms:
        try:
            axis, chosen = _compared(terms, stages, along)
        except ClaimError:
            for pin in where:
                if _values_of(terms, _paths_named(pin.axis or "", measuring), measuring):
                    message = f"`where` sets {pin.axis}, which is the axis that the claim compares"
                    raise ClaimError(message) from None
            raise
        used.append(axis)
    open_axes = _open_axes(used, stages)
    groups: dict[tuple[str, ...], StageGroup] = {}
    for stage in stages:
        point = tuple(axis_label(stage.axes, path) for path in open_axes)
        open_values = {path: stage.axes[path] for path in open_axes if path in stage.axes}
        group = groups.setdefault(point, StageGroup(open_values, tuple([] for _ in chosen)))
        for member, value in zip(group.members, chosen, strict=True):
            if not terms or axis_label(stage.axes, axis) == value:
                member.append(stage)
    if not (complete := [group for group in groups.values() if all(group.members)]):
        words = " and ".join(map(str, terms))
        raise ClaimError(f"the grid has no {words} with the same {name_list(open_axes)}")
    values, field = _values(axis, stages), axis.rpartition(".")[2]
    names = [
        term.value if isinstance(values[value], str | Mapping) else str(Pin(term.value, field))
        for term, value in zip(terms, chosen, strict=bool(terms))
    ]
    return names, complete


def pinned(where: Sequence[Pin], stages: Stages) -> Stages:
    """Return the stages that have the pinned value on every pinned axis. Raises ClaimError."""
    for i, pin in enumerate(where):
        axis = pin.axis or ""
        if axis in [other.axis for other in where[:i]]:
            raise ClaimError(f"`where` sets {axis} twice")
        paths = _axes_named(axis, stages)
        named = {path: _values_named(pin.value, _values(path, stages)) for path in paths}
        found = {
            path: [stage for stage in stages if axis_label(stage.axes, path) == values[0]]
            for path, values in named.items()
            if len(values) == 1
        }
        if not found:
            known = list(dict.fromkeys(label for path in paths for label in _values(path, stages)))
            raise _several(pin.value, named.values()) or ClaimError(
                f"{axis} has no value {shown(pin.value)}{_near(pin.value, known)}"
                f" (has: {name_list(known)})"
            )
        stages = found[_only(axis, found)]
    return stages


def numeric_axis(name: str, where: Sequence[Pin], measuring: Stages) -> str:
    """Return the path of the axis of two or more numbers that a claim runs along. Raises ClaimError
    if there is none."""
    stages = pinned(where, measuring)
    if not _paths(stages):
        raise ClaimError(f"no axis {name!r}: the sweep has no axis for these stages")
    paths = _axes_named(name, stages)
    path = _only(name, {path: [s for s in stages if path in s.axes] for path in paths})
    values = _values(path, stages)
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values.values()):
        raise ClaimError(f"{name} is not an axis of numbers (has: {name_list(values)})")
    if len(values) < 2:
        raise ClaimError(f"{name} has one value, {next(iter(values))}; needs at least two")
    return path


def _compared(terms: Sequence[Pin], stages: Stages, along: str | None) -> tuple[str, list[str]]:
    """The axis that all terms are values of, and the labels of the values."""
    paths = [path for path in _paths(stages) if path != along]
    named = sorted({term.axis for term in terms if term.axis is not None})
    for name in named:
        paths = [path for path in _axes_named(name, stages) if path in paths]
    if named and not paths:
        raise ClaimError(f"compares values of different axes: {name_list(named)}")
    found = _values_of(terms, paths, stages)
    if not found:
        raise _no_axis(terms, paths, stages)
    if len(found) > 1:
        found = {path: found[path] for path in found if is_embedding(path)} or found
    members = {
        path: [s for value in labels for s in stages if axis_label(s.axes, path) == value]
        for path, labels in found.items()
    }
    axis = _only(" and ".join(map(str, terms)), members)
    labels = found[axis]
    for i, value in enumerate(labels):
        if value in labels[:i]:
            first = terms[labels.index(value)]
            raise ClaimError(f"names {value} twice: as {first} and as {terms[i]}")
    return axis, labels


def _values_of(terms: Sequence[Pin], paths: Sequence[str], stages: Stages) -> dict[str, list[str]]:
    """The labels of all terms, by axis, for the axes that have exactly one for each."""
    by_path = {path: _values(path, stages) for path in paths}
    named = {path: [_values_named(t.value, v) for t in terms] for path, v in by_path.items()}
    return {
        path: [label for (label,) in labels]
        for path, labels in named.items()
        if all(len(one) == 1 for one in labels)
    }


def _several(text: str, named: Iterable[list[str]]) -> ClaimError | None:
    several = (values for values in named if len(values) > 1)
    return next((ClaimError(f"{text} is ambiguous: {name_list(v)}") for v in several), None)


def _no_axis(terms: Sequence[Pin], paths: Sequence[str], stages: Stages) -> ClaimError:
    if not paths:
        return ClaimError("compares values of an axis, but the sweep has no axis for these stages")
    having = {}
    values_of = {path: _values(path, stages) for path in paths}
    for term in terms:
        named = {path: _values_named(term.value, values) for path, values in values_of.items()}
        having[term] = [path for path, values in named.items() if len(values) == 1]
        if not having[term] and (error := _several(term.value, named.values())):
            return error
    unknown = [term for term, found in having.items() if not found]
    if not unknown:
        where = "; ".join(f"{term} is on {name_list(found)}" for term, found in having.items())
        return ClaimError(f"compares values of different axes: {where}")
    best = max(paths, key=lambda path: sum(path in found for found in having.values()))
    if not any(having.values()):
        best = next(filter(is_embedding, paths), paths[0])
    known = list(values_of[best])
    names = " and ".join(map(str, unknown))
    verb = "is not a value" if len(unknown) == 1 else "are not values"
    near = _near(unknown[0].value, known)
    return ClaimError(f"{names} {verb} of {best}{near} (has: {name_list(known)})")


def _near(text: str, labels: Sequence[str]) -> str:
    return did_you_mean(text, [*labels, *(value.partition("(")[0] for value in labels)])


def _only(what: str, found: Mapping[str, Stages]) -> str:
    """The first axis if all of them select the same stages. Raises ClaimError."""
    ways = {tuple((stage.key, stage.label) for stage in stages) for stages in found.values()}
    if len(ways) > 1:
        raise ClaimError(f"{what} can be a value of {' or '.join(found)}; write axis=value in full")
    return next(iter(found))


def _open_axes(used: Sequence[str], stages: Stages) -> list[str]:
    """The axes that vary and do not follow from those that the claim uses, each once."""
    found: dict[tuple[str, ...], str] = {}
    points = [tuple(axis_label(stage.axes, axis) for axis in used) for stage in stages]
    for path in _paths(stages):
        values = tuple(axis_label(stage.axes, path) for stage in stages)
        if len({*zip(points, values, strict=True)}) > len({*points}):
            found.setdefault(values, path)
    return list(found.values())


def _axes_named(name: str, stages: Stages) -> list[str]:
    """The paths that a name means: itself, or those that end in it. Raises ClaimError."""
    if found := _paths_named(name, stages):
        return found
    paths = _paths(stages)
    endings = {path.rpartition(".")[2]: path for path in paths}
    near = did_you_mean(name, [*endings, *paths])
    raise ClaimError(f"no axis {name!r}{near} (allowed: {name_list(paths)})")


def _paths_named(name: str, stages: Stages) -> list[str]:
    paths = _paths(stages)
    return [name] if name in paths else [path for path in paths if path.endswith(f".{name}")]


def _paths(stages: Stages) -> list[str]:
    return list(dict.fromkeys(path for stage in stages for path in stage.axes))


def _values(path: str, stages: Stages) -> dict[str, Any]:
    """The values of an axis by their labels, as tables show them."""
    return {axis_label(s.axes, path): s.axes[path] for s in stages if path in s.axes}


def _values_named(text: str, values: Mapping[str, Any]) -> list[str]:
    """The labels that a text names: the same value, or else those with its name and its options."""
    if text in values:
        return [text]
    name, options = label_parts(text)
    parts = {shown: label_parts(shown) for shown in values}
    same = [shown for shown in values if parts[shown] == (name, options)]
    return same or [
        shown
        for shown, value in values.items()
        if isinstance(value, Mapping) and parts[shown][0] == name and options <= parts[shown][1]
    ]
