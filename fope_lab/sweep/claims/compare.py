"""What a claim says in numbers: on which side of a value sums of measured numbers are.

For each combination of the axes that a claim leaves open, it is made of numbers, each that of one
model over its seeds, and of contrasts, each a weighted sum of numbers under one seed. `a < b` is
the contrast a − b, on the lower side of 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fope_lab.stages.metric import Metric, MetricPoint
from fope_lab.statistics.decision import Side
from fope_lab.sweep.claims.lookup import Catalogue, Measured, StageGroup, group_stages, numeric_axis
from fope_lab.sweep.claims.statement import (
    ALONG,
    VERBS,
    Claim,
    ClaimError,
    Constant,
    Margin,
    OtherNumber,
    Pin,
    PointRange,
    Statement,
)
from fope_lab.sweep.graph import Stage

Seeds = Mapping[int | None, Stage]


@dataclass(frozen=True)
class Number:
    """One number of one model: its name in the claim, and the stages that measure it, by seed.

    `model` names the model, which has several numbers along a curve. `point` is the name that the
    stages measure it under, and the point of its curve.
    """

    name: str
    model: str
    stages: Seeds
    point: MetricPoint


@dataclass(frozen=True)
class Contrast:
    """The statement that a sum, called `name`, is on one `side` of `null`; `weights` are by index.
    `positive` is the number that a margin is a share of; it must be above 0."""

    name: str
    weights: Mapping[int, float]
    null: float
    side: Side
    positive: int | None = None


@dataclass(frozen=True)
class Combination:
    """What a claim says of one combination of the axes that it leaves open, `axes` by path."""

    axes: Mapping[str, Any]
    numbers: tuple[Number, ...]
    contrasts: tuple[Contrast, ...]

    @functools.cached_property
    def is_exact(self) -> bool:
        """Whether no stage has a model, so that there is nothing random to test."""
        stages = (stage for number in self.numbers for stage in number.stages.values())
        return all(stage.model_spec is None for stage in stages)


@dataclass(frozen=True)
class Comparison:
    """A claim that its sweep can answer."""

    claim: Claim
    measured: Measured
    combinations: tuple[Combination, ...]


def compare(claim: Claim, catalogue: Catalogue) -> Comparison:
    """Return what a claim compares. Raises ClaimError if the sweep can't answer the claim."""
    measured, statement = catalogue.find(claim.quantity), claim.statement
    _check_fractions(statement, measured.metric)
    if statement.verb not in ALONG:
        read = _at_a_point
    else:
        read = _along_curve if statement.along is None else _along_grid
    return Comparison(claim, measured, tuple(read(claim, measured)))


def _groups(
    claim: Claim, stages: Sequence[Stage], along: str | None = None
) -> tuple[Sequence[str], Sequence[StageGroup]]:
    pins = [operand for operand in claim.statement.operands if isinstance(operand, Pin)]
    return group_stages(pins, claim.where, stages, along)


def _check_fractions(statement: Statement, metric: Metric) -> None:
    if not metric.is_fraction:
        return
    margin = statement.margin
    if margin is not None and not margin.unit and margin.amount >= 1:
        raise ClaimError(
            f"{statement}: {margin.amount:g} is no margin of {metric.short_name}, which is"
            " between 0 and 1; 5 points are 0.05"
        )
    for operand in statement.operands:
        if isinstance(operand, Constant) and not 0 <= operand.value <= 1:
            raise ClaimError(
                f"compares {metric.short_name} with {operand}, but it is between 0 and 1;"
                f" a value of an axis is written axis={operand}"
            )


def _by_seed(stages: Sequence[Stage]) -> Seeds:
    found: dict[int | None, Stage] = {}
    for stage in stages:
        found.setdefault(stage.seed, stage)
    return found


# Operands at one point


@dataclass(frozen=True)
class Term:
    """What a contrast sums: the number at `index` of a combination, or the value of a constant."""

    name: str
    index: int | None = None
    constant: float = 0.0


def contrasts_between(statement: Statement, terms: Sequence[Term]) -> tuple[Contrast, ...]:
    """Return what is tested of the operands of a statement at one point."""
    return tuple(
        _contrast(a, b, statement.margin, side)
        for a, b in pairwise(terms)
        for side in VERBS[statement.verb]
    )


def _contrast(first: Term, second: Term, margin: Margin | None, side: Side) -> Contrast:
    """The first is on one side of the second, moved by a margin."""
    factor, shift = (1.0, 0.0) if margin is None else margin.limit(side)
    is_share = margin is not None and margin.unit != ""
    parts = ((first, 1.0, ""), (second, -factor, f"− {f'{factor:.6g} · ' * is_share}"))
    weights = {term.index: weight for term, weight, _ in parts if term.index is not None}
    name = " ".join(f"{sign}{term.name}" for term, _, sign in parts if term.index is not None)
    null = shift - first.constant + factor * second.constant
    return Contrast(name, weights, null, side, second.index if is_share else None)


def _at_a_point(claim: Claim, measured: Measured) -> Iterator[Combination]:
    statement, at = claim.statement, claim.at
    if isinstance(at, PointRange):
        raise ClaimError(
            f"found @{at}, needs one point: only grows, falls and stays run over several"
        )
    stages = measured.at(at)
    names, groups = _groups(claim, stages)
    for group in groups:
        named = iter(zip(names, group.members, strict=False))  # without names, of one member
        numbers: list[Number] = []
        terms = []
        for operand in statement.operands:
            if isinstance(operand, Constant):
                terms.append(Term(str(operand), constant=operand.value))
                continue
            metric = measured.metric
            name, members = metric.short_name, group.members[0]
            if isinstance(operand, OtherNumber):
                metric = measured.other(operand.name, at)
                if metric == measured.metric:
                    raise ClaimError(f"compares {metric.short_name} with itself")
                name = metric.short_name
            elif isinstance(operand, Pin):
                name, members = next(named)
            terms.append(Term(name, len(numbers)))
            numbers.append(Number(name, name, _by_seed(members), (metric.name, at)))
        yield Combination(group.axes, tuple(numbers), contrasts_between(statement, terms))


# One model along an axis


def contrasts_along(
    statement: Statement, model: str, axis: str, xs: Sequence[float], names: Sequence[str]
) -> tuple[Contrast, ...]:
    """Return what is tested of a model's numbers, with these names, at ascending `xs` of an axis.

    With a limit it is the difference of every later number to the first, so that a rise in between
    is seen. Otherwise it is the least-squares slope over log₂ of the axis, or over the axis itself
    if it has 0 or less, so that a single odd point decides less than in the difference of the ends.
    """
    sides = VERBS[statement.verb]
    if statement.margin is not None:
        first, *later = (Term(name, i) for i, name in enumerate(names))
        return tuple(
            _contrast(term, first, statement.margin, side) for term in later for side in sides
        )
    doublings = xs[0] > 0
    places = [math.log2(x) for x in xs] if doublings else list(xs)
    mean = math.fsum(places) / len(places)
    square = math.fsum((place - mean) ** 2 for place in places)
    weights = {i: (place - mean) / square for i, place in enumerate(places)}
    per = f"per doubling of {axis}" if doublings else f"per 1 of {axis}"
    return tuple(Contrast(f"slope of {model} {per}", weights, 0.0, side) for side in sides)


def _along_curve(claim: Claim, measured: Measured) -> Iterator[Combination]:
    statement, points, metric = claim.statement, claim.at, measured.metric
    if not isinstance(points, PointRange):
        raise ClaimError(
            f"{statement.words!r} runs along an axis: needs a range of points, as in @128..1024,"
            " or an axis of the grid, as in 'grows with learning_rate'"
        )
    if not measured.xs:
        raise ClaimError(f"{metric.short_name} is a single number, and has no @{points}")
    xs = [x for x in measured.xs if points.first <= x <= points.last]
    if len(xs) < 2:
        raise ClaimError(
            f"{measured.stage} measures {metric.short_name} at {len(xs)}"
            f" point{'s' * (len(xs) != 1)} in {points}, needs at least two (at: {measured.few_xs})"
        )
    everywhere = set.intersection(*({id(stage) for stage in measured.at(x)} for x in xs))
    stages = [stage for stage in measured.at(xs[0]) if id(stage) in everywhere]
    if not stages:
        raise ClaimError(
            f"no model has {metric.short_name} at all points in {points} (at: {measured.few_xs})"
        )
    models, groups = _groups(claim, stages)
    model = next(iter(models), metric.short_name)
    names = [f"{model}@{x}" for x in xs]
    for group in groups:
        seeds = _by_seed(group.members[0])
        numbers = tuple(
            Number(name, model, seeds, (metric.name, x)) for name, x in zip(names, xs, strict=True)
        )
        contrasts = contrasts_along(statement, model, metric.by, xs, names)
        yield Combination(group.axes, numbers, contrasts)


def _along_grid(claim: Claim, measured: Measured) -> Iterator[Combination]:
    statement, at, metric = claim.statement, claim.at, measured.metric
    along = statement.along or ""
    if isinstance(at, PointRange):
        raise ClaimError(f"runs along both @{at} and {along}; needs one of them")
    stages = measured.at(at)
    path = numeric_axis(along, claim.where, stages)
    axis = path.rpartition(".")[2]
    models, groups = _groups(claim, stages, path)
    model = next(iter(models), metric.short_name)
    found = False
    for group in groups:
        by_value: dict[float, list[Stage]] = {}
        for stage in group.members[0]:
            if path in stage.axes:
                by_value.setdefault(float(stage.axes[path]), []).append(stage)
        xs = sorted(by_value)
        if len(xs) < 2:
            continue
        names = [f"{model}[{axis}={x:g}]" for x in xs]
        numbers = tuple(
            Number(name, name, _by_seed(by_value[x]), (metric.name, at))
            for name, x in zip(names, xs, strict=True)
        )
        contrasts = contrasts_along(statement, model, axis, xs, names)
        found = True
        yield Combination(group.axes, numbers, contrasts)
    if not found:
        of = f" of {statement.operands[0]}" * isinstance(statement.operands[0], Pin)
        raise ClaimError(f"no model{of} has two values of {along} with all else equal")
