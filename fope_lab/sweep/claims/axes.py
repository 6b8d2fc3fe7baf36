"""Which stages of a sweep a claim compares: the values of its terms on an axis, and what is pinned.

An axis that varies together with the compared one, such as an axis zipped with it, adds no
combinations: the claim compares the models as the sweep pairs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.stages.labels import axis_label, is_embedding, label_parts
from fope_lab.sweep.claims.operands import Pin
from fope_lab.sweep.claims.reader import ClaimError
from fope_lab.sweep.graph import Stage


@dataclass(frozen=True)
class Group:
    """The stages of each term for one combination of the axes that a claim leaves open.

    `axes` are the values of those axes, by path.
    """

    axes: Mapping[str, Any]
    members: tuple[tuple[Stage, ...], ...]


@dataclass(frozen=True)
class Grouped:
    """The groups of a claim; `names` are its terms as a reader should see them.

    That is a number with its axis, `batch_tokens=128`, and anything else as the claim writes it.
    """

    names: tuple[str, ...]
    groups: tuple[Group, ...]


def group_stages(
    terms: Sequence[Pin],
    where: Sequence[Pin],
    measuring: Sequence[Stage],
    along: str | None = None,
) -> Grouped:
    """Group the stages that measure something by the axes that a claim leaves open.

    Without terms, each group has all of its stages as the only member. `along` is the path of an
    axis that the claim runs along, which is neither compared nor left open. Raises ClaimError.
    """
    stages = pinned(where, measuring)
    if not terms:
        return Grouped((), tuple(_groups([], [], stages, along)))
    try:
        axis, chosen = _compared(terms, stages, along)
    except ClaimError:
        for pin in where:
            paths = _paths_named(pin.axis or "", measuring)
            if _values_of(terms, paths, measuring):
                message = f"`where` sets {pin.axis}, which is the axis that the claim compares"
                raise ClaimError(message) from None
        raise
    groups = tuple(group for group in _groups([axis], chosen, stages, along) if all(group.members))
    if not groups:
        words = " and ".join(str(term) for term in terms)
        others = name_list(_open_axes([axis, *filter(None, [along])], stages))
        raise ClaimError(f"the grid has no {words} with the same {others}")
    values = _values(axis, stages)
    names = tuple(
        term.value
        if isinstance(values[value], str | Mapping)
        else str(Pin(term.value, axis.rpartition(".")[2]))
        for term, value in zip(terms, chosen, strict=True)
    )
    return Grouped(names, groups)


def pinned(where: Sequence[Pin], stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that have the pinned value on every pinned axis. Raises ClaimError."""
    found = list(stages)
    for i, pin in enumerate(where):
        if pin.axis in [other.axis for other in where[:i]]:
            raise ClaimError(f"`where` sets {pin.axis} twice")
        found = _pinned(pin, found)
    return found


def numeric_axis(name: str, where: Sequence[Pin], measuring: Sequence[Stage]) -> str:
    """Return the path of the axis that a claim runs along.

    Raises ClaimError if there is none, or if it has less than two values, or one that is no number.
    """
    stages = pinned(where, measuring)
    if not _paths(stages):
        raise ClaimError(f"no axis {name!r}: the sweep has no axis for these stages")
    paths = _axes_named(name, stages)
    path = _only(name, {path: [s for s in stages if path in s.axes] for path in paths})
    values = _values(path, stages)
    odd = [text for text, value in values.items() if not _is_number(value)]
    if odd:
        raise ClaimError(f"{name} is not an axis of numbers (has: {name_list(values)})")
    if len(values) < 2:
        raise ClaimError(f"{name} has one value, {next(iter(values))}; needs at least two")
    return path


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _groups(
    axis: Sequence[str], chosen: Sequence[str], stages: Sequence[Stage], along: str | None
) -> list[Group]:
    """The stages of each chosen value of an axis, or all of them, by the axes that are open."""
    open_axes = _open_axes([*axis, *filter(None, [along])], stages)
    count = len(chosen) or 1
    members: dict[tuple[str, ...], list[list[Stage]]] = {}
    axes: dict[tuple[str, ...], dict[str, Any]] = {}
    for stage in stages:
        place = tuple(axis_label(stage.axes, path) for path in open_axes)
        found = members.setdefault(place, [[] for _ in range(count)])
        axes.setdefault(place, {p: stage.axes[p] for p in open_axes if p in stage.axes})
        for member, value in itertools.zip_longest(found, chosen):
            if value is None or axis_label(stage.axes, axis[0]) == value:
                member.append(stage)
    return [Group(axes[place], tuple(map(tuple, found))) for place, found in members.items()]


def _pinned(pin: Pin, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that have the pinned value on an axis. Raises ClaimError."""
    assert pin.axis is not None
    named = {
        path: _values_named(pin.value, _values(path, stages))
        for path in _axes_named(pin.axis, stages)
    }
    found = {
        path: [stage for stage in stages if axis_label(stage.axes, path) == values[0]]
        for path, values in named.items()
        if len(values) == 1
    }
    if not found:
        raise _several(pin.value, named.values()) or _no_value(pin, stages)
    return found[_only(pin.axis, found)]


def _compared(
    terms: Sequence[Pin], stages: Sequence[Stage], along: str | None
) -> tuple[str, list[str]]:
    """Return the axis that all terms are values of, and the labels of the values.

    Raises ClaimError if no axis has all terms, or if several do.
    """
    paths = [path for path in _paths(stages) if path != along]
    named = {term.axis for term in terms if term.axis is not None}
    for name in sorted(named):
        paths = [path for path in _axes_named(name, stages) if path in paths]
    if named and not paths:
        raise ClaimError(f"compares values of different axes: {name_list(sorted(named))}")
    found = _values_of(terms, paths, stages)
    if not found:
        raise _no_axis(terms, paths, stages)
    if len(found) > 1:
        embeddings = {path: labels for path, labels in found.items() if is_embedding(path)}
        found = embeddings or found
    members = {
        path: [s for value in labels for s in stages if axis_label(s.axes, path) == value]
        for path, labels in found.items()
    }
    axis = _only(" and ".join(str(term) for term in terms), members)
    labels = found[axis]
    for i, value in enumerate(labels):
        if value in labels[:i]:
            first = terms[labels.index(value)]
            raise ClaimError(f"names {value} twice: as {first} and as {terms[i]}")
    return axis, labels


def _values_of(
    terms: Sequence[Pin], paths: Sequence[str], stages: Sequence[Stage]
) -> dict[str, list[str]]:
    """Return the labels of all terms, by axis, for the axes that have exactly one for each."""
    found = {}
    for path in paths:
        values = _values(path, stages)
        found[path] = [_values_named(term.value, values) for term in terms]
    return {
        path: [values[0] for values in named]
        for path, named in found.items()
        if all(len(values) == 1 for values in named)
    }


def _several(text: str, named: Iterable[list[str]]) -> ClaimError | None:
    """Return the error for a text that names several values of an axis, or None."""
    values = next((values for values in named if len(values) > 1), None)
    return None if values is None else ClaimError(f"{text} is ambiguous: {name_list(values)}")


def _no_value(pin: Pin, stages: Sequence[Stage]) -> ClaimError:
    paths = _axes_named(pin.axis or "", stages)
    known = list(dict.fromkeys(label for path in paths for label in _labels(path, stages)))
    near = _near(pin.value, known)
    return ClaimError(f"{pin.axis} has no value {shown(pin.value)}{near} (has: {name_list(known)})")


def _no_axis(terms: Sequence[Pin], paths: Sequence[str], stages: Sequence[Stage]) -> ClaimError:
    """Return why no axis has all terms: a term is a value of none, or the axes differ."""
    if not paths:
        return ClaimError("compares values of an axis, but the sweep has no axis for these stages")
    having = {}
    for term in terms:
        named = {path: _values_named(term.value, _values(path, stages)) for path in paths}
        having[term] = [path for path, values in named.items() if len(values) == 1]
        if not having[term] and (error := _several(term.value, named.values())):
            return error
    unknown = [term for term, found in having.items() if not found]
    if not unknown:
        where = "; ".join(f"{term} is on {name_list(found)}" for term, found in having.items())
        return ClaimError(f"compares values of different axes: {where}")
    best = max(paths, key=lambda path: sum(path in found for found in having.values()))
    if not any(having.values()):
        best = next((path for path in paths if is_embedding(path)), paths[0])
    known = _labels(best, stages)
    near = _near(unknown[0].value, known)
    names = " and ".join(str(term) for term in unknown)
    verb = "is not a value" if len(unknown) == 1 else "are not values"
    return ClaimError(f"{names} {verb} of {best}{near} (has: {name_list(known)})")


def _near(text: str, labels: Sequence[str]) -> str:
    """Return a hint at the nearest value, or at the nearest name of a value with options."""
    return did_you_mean(text, [*labels, *(value.partition("(")[0] for value in labels)])


def _only(what: str, found: Mapping[str, Sequence[Stage]]) -> str:
    """Return the first axis if all of them select the same stages. Raises ClaimError."""
    ways = {tuple((stage.key, stage.label) for stage in stages) for stages in found.values()}
    if len(ways) > 1:
        raise ClaimError(f"{what} can be a value of {' or '.join(found)}; write axis=value in full")
    return next(iter(found))


def _open_axes(used: Sequence[str], stages: Sequence[Stage]) -> list[str]:
    """Return the axes that make combinations.

    They vary, and not together with the axes that are `used` by the claim. Of several that have the
    same values in every stage, only the first counts.
    """
    found: dict[tuple[str, ...], str] = {}
    for path in _paths(stages):
        values = tuple(axis_label(stage.axes, path) for stage in stages)
        with_value: dict[tuple[str, ...], set[str]] = {}
        for stage, value in zip(stages, values, strict=True):
            at = tuple(axis_label(stage.axes, axis) for axis in used)
            with_value.setdefault(at, set()).add(value)
        if path not in used and any(len(labels) > 1 for labels in with_value.values()):
            found.setdefault(values, path)
    return list(found.values())


def _axes_named(name: str, stages: Sequence[Stage]) -> list[str]:
    """Return the paths that a name means: the name itself, or those that end in it.

    Raises ClaimError if there are none.
    """
    found = _paths_named(name, stages)
    if not found:
        paths = _paths(stages)
        endings = {path.rpartition(".")[2]: path for path in paths}
        near = did_you_mean(name, [*endings, *paths])
        raise ClaimError(f"no axis {name!r}{near} (allowed: {name_list(paths)})")
    return found


def _paths_named(name: str, stages: Sequence[Stage]) -> list[str]:
    paths = _paths(stages)
    return [name] if name in paths else [path for path in paths if path.endswith(f".{name}")]


def _paths(stages: Sequence[Stage]) -> list[str]:
    return list(dict.fromkeys(path for stage in stages for path in stage.axes))


def _labels(path: str, stages: Sequence[Stage]) -> list[str]:
    """Return the values of an axis in the form that tables show."""
    return list(_values(path, stages))


def _values(path: str, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the values of an axis by their labels."""
    return {axis_label(s.axes, path): s.axes[path] for s in stages if path in s.axes}


def _values_named(text: str, values: Mapping[str, Any]) -> list[str]:
    """Return the labels of those of an axis's values, by label, that a text names.

    A text names the value with the same label, where numbers may be spelled in any way. Otherwise
    it names the values with its name and all of its options: `fope` means `fope(base=129)` if that
    is the only one.
    """
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
