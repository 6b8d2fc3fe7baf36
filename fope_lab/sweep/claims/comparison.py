"""What a claim compares in its sweep: for each combination of the axes, the stages of each term.

An axis that goes along with the compared one, as one zipped with it does, has no combinations of
its own: the claim compares the models as the sweep pairs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.stages.labels import label, label_parts
from fope_lab.sweep.claims.grammar import Claim, ClaimError, Pin
from fope_lab.sweep.claims.selection import Catalogue, Selected
from fope_lab.sweep.graph import Stage

Seeds = Mapping[int | None, Stage]


@dataclass(frozen=True)
class Combination:
    """One comparison: the values of the axes that the claim leaves open, by path, and for each term
    its stages by seed."""

    axes: Mapping[str, Any]
    members: tuple[Seeds, ...]


@dataclass(frozen=True)
class Comparison:
    """A claim that its sweep can answer; `names` are what to call its terms: a number by its axis,
    `batch_tokens=128`, anything else as the claim does."""

    claim: Claim
    selected: Selected
    names: tuple[str, ...]
    combinations: tuple[Combination, ...]


def compare(claim: Claim, catalogue: Catalogue) -> Comparison:
    """Find what a claim compares. Raises ClaimError."""
    selected = catalogue.find(claim.quantity)
    measuring = stages = list(selected.at(claim.x))
    for i, pin in enumerate(claim.where):
        if pin.axis in [other.axis for other in claim.where[:i]]:
            raise ClaimError(f"where has {pin.axis} twice")
        stages = _pinned(pin, stages)
    try:
        axis, chosen = _compared(claim, stages)
    except ClaimError:
        for pin in claim.where:
            if _values_of(claim, _paths_named(pin.axis or "", measuring), measuring):
                message = f"where has {pin.axis}, which is what is compared"
                raise ClaimError(message) from None
        raise
    open_axes = _open_axes(axis, stages)
    groups: dict[tuple[str, ...], list[dict[int | None, Stage]]] = {}
    axes: dict[tuple[str, ...], dict[str, Any]] = {}
    for stage in stages:
        place = tuple(_label(stage, path) for path in open_axes)
        members = groups.setdefault(place, [{} for _ in claim.terms])
        axes.setdefault(place, {p: stage.axes[p] for p in open_axes if p in stage.axes})
        for member, value in zip(members, chosen, strict=True):
            if _label(stage, axis) == value:
                member.setdefault(stage.seed, stage)
    whole = [place for place, members in groups.items() if all(members)]
    if not whole:
        terms = " and ".join(str(term) for term in claim.terms)
        raise ClaimError(f"no cell of the grid has {terms} with the same {name_list(open_axes)}")
    combinations = tuple(Combination(axes[place], tuple(groups[place])) for place in whole)
    values = {label(stage.axes[axis]): stage.axes[axis] for stage in stages if axis in stage.axes}
    names = tuple(
        term.value
        if isinstance(values[one], str | Mapping)
        else str(Pin(term.value, axis.rpartition(".")[2]))
        for term, one in zip(claim.terms, chosen, strict=True)
    )
    return Comparison(claim, selected, names, combinations)


def _pinned(pin: Pin, stages: Sequence[Stage]) -> list[Stage]:
    """The stages that have a value on an axis. Raises ClaimError."""
    assert pin.axis is not None
    named = {p: _values_named(pin.value, p, stages) for p in _axes_named(pin.axis, stages)}
    found = {
        path: [stage for stage in stages if _label(stage, path) == values[0]]
        for path, values in named.items()
        if len(values) == 1
    }
    if not found:
        raise _several(pin.value, named.values()) or _no_value(pin, stages)
    return found[_only(pin.axis, found)]


def _compared(claim: Claim, stages: Sequence[Stage]) -> tuple[str, list[str]]:
    """The axis that all terms are values of, and the labels of these values. Raises ClaimError."""
    paths = _paths(stages)
    named = {term.axis for term in claim.terms if term.axis is not None}
    for name in sorted(named):
        paths = [path for path in _axes_named(name, stages) if path in paths]
    if named and not paths:
        raise ClaimError(f"compares values of different axes: {name_list(sorted(named))}")
    found = _values_of(claim, paths, stages)
    if not found:
        raise _no_axis(claim, paths, stages)
    if len(found) > 1:
        embeddings = {path: labels for path, labels in found.items() if _is_embedding(path)}
        found = embeddings or found
    members = {
        path: [s for value in labels for s in stages if _label(s, path) == value]
        for path, labels in found.items()
    }
    axis = _only(" and ".join(str(term) for term in claim.terms), members)
    labels = found[axis]
    for i, value in enumerate(labels):
        if value in labels[:i]:
            first = claim.terms[labels.index(value)]
            raise ClaimError(f"names {value} twice: as {first} and as {claim.terms[i]}")
    return axis, labels


def _values_of(claim: Claim, paths: Sequence[str], stages: Sequence[Stage]) -> dict[str, list[str]]:
    """The labels of all terms on each axis that has one for each."""
    found = {path: [_values_named(t.value, path, stages) for t in claim.terms] for path in paths}
    return {
        path: [values[0] for values in named]
        for path, named in found.items()
        if all(len(values) == 1 for values in named)
    }


def _several(text: str, named: Iterable[list[str]]) -> ClaimError | None:
    """What to say of a text that names several values of an axis; None if it names none."""
    values = next((values for values in named if len(values) > 1), None)
    return None if values is None else ClaimError(f"{text} is ambiguous: {name_list(values)}")


def _no_value(pin: Pin, stages: Sequence[Stage]) -> ClaimError:
    paths = _axes_named(pin.axis or "", stages)
    known = list(dict.fromkeys(label for path in paths for label in _labels(path, stages)))
    near = _near(pin.value, known)
    return ClaimError(f"{pin.axis} has no value {shown(pin.value)}{near} (has: {name_list(known)})")


def _no_axis(claim: Claim, paths: Sequence[str], stages: Sequence[Stage]) -> ClaimError:
    """Why no axis has all terms: some are values of none, or each is one of another axis."""
    if not paths:
        return ClaimError("compares values of an axis, and the sweep has no axis for these stages")
    having = {}
    for term in claim.terms:
        named = {path: _values_named(term.value, path, stages) for path in paths}
        having[term] = [path for path, values in named.items() if len(values) == 1]
        if not having[term] and (error := _several(term.value, named.values())):
            return error
    unknown = [term for term, found in having.items() if not found]
    if not unknown:
        where = "; ".join(f"{term} is of {name_list(found)}" for term, found in having.items())
        return ClaimError(f"compares values of different axes: {where}")
    best = max(paths, key=lambda path: sum(path in found for found in having.values()))
    if not any(having.values()):
        best = next((path for path in paths if _is_embedding(path)), paths[0])
    known = _labels(best, stages)
    near = _near(unknown[0].value, known)
    names = " and ".join(str(term) for term in unknown)
    verb = "is no value" if len(unknown) == 1 else "are no values"
    return ClaimError(f"{names} {verb} of {best}{near} (has: {name_list(known)})")


def _near(text: str, labels: Sequence[str]) -> str:
    """The nearest value, or the nearest name of a value with options."""
    return did_you_mean(text, [*labels, *(value.partition("(")[0] for value in labels)])


def _only(what: str, found: Mapping[str, Sequence[Stage]]) -> str:
    """The axis that is meant: the first, if all choose the same stages. Raises ClaimError."""
    ways = {tuple(map(id, stages)) for stages in found.values()}
    if len(ways) > 1:
        raise ClaimError(f"{what} may be of {' or '.join(found)}; write axis=value in full")
    return next(iter(found))


def _open_axes(axis: str, stages: Sequence[Stage]) -> list[str]:
    """The axes that make combinations: those that vary, not along with the compared one, and of
    those that have the same values everywhere the first."""
    found: dict[tuple[str, ...], str] = {}
    for path in _paths(stages):
        values = tuple(_label(stage, path) for stage in stages)
        with_value: dict[str, set[str]] = {}
        for stage, value in zip(stages, values, strict=True):
            with_value.setdefault(_label(stage, axis), set()).add(value)
        if path != axis and any(len(one) > 1 for one in with_value.values()):
            found.setdefault(values, path)
    return list(found.values())


def _axes_named(name: str, stages: Sequence[Stage]) -> list[str]:
    """The paths that a name means: its own, or those that end in it. Raises ClaimError."""
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
    """The values of an axis as tables show them."""
    return list(dict.fromkeys(label(s.axes[path]) for s in stages if path in s.axes))


def _label(stage: Stage, path: str) -> str:
    return label(stage.axes[path]) if path in stage.axes else "–"


def _is_embedding(path: str) -> bool:
    return path.rpartition(".")[2] == "embedding"


def _values_named(text: str, path: str, stages: Sequence[Stage]) -> list[str]:
    """The labels of the axis's values that a text names: the same, with numbers in any spelling, or
    those with this name that have all its options: `fope` is `fope(base=129)` where there is no
    other."""
    values = {label(s.axes[path]): s.axes[path] for s in stages if path in s.axes}
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
