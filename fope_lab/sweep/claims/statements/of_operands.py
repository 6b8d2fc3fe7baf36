"""Statements that compare numbers at one point: `a > b`, `a <= b * 1.01`, `a ~ b within 1%`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.statistics.t_test import Side
from fope_lab.sweep.claims.axes import Group, group_stages
from fope_lab.sweep.claims.contrast import Combination, Contrast, Seeds, Series
from fope_lab.sweep.claims.margins import Reference
from fope_lab.sweep.claims.operands import Constant, Operand, OtherNumber, Pin
from fope_lab.sweep.claims.reader import ClaimError
from fope_lab.sweep.claims.statements.base import Scope, Span, Statement
from fope_lab.sweep.graph import Stage


@dataclass(frozen=True)
class Place:
    """An operand among the series of a combination, or the value of a constant."""

    name: str
    series: int | None = None
    constant: float = 0.0


@dataclass(frozen=True)
class OperandStatement(Statement):
    """A statement about `operands`, of which the first may be the quantity itself."""

    operands: tuple[Operand, ...]

    def __post_init__(self) -> None:
        for i, operand in enumerate(self.operands):
            if operand in self.operands[:i]:
                raise ClaimError(f"names {operand} twice")
        if all(isinstance(operand, Constant) for operand in self.operands):
            raise ClaimError("compares constants")

    def compare(self, scope: Scope) -> Sequence[Combination]:
        """One combination for each group of stages. Raises ClaimError."""
        if isinstance(scope.at, Span):
            raise ClaimError(
                f"found @{scope.at}, needs one point: only grows, falls and stays run over several"
            )
        selected = scope.selected
        stages = selected.at(scope.at)
        self._check_fractions(scope)
        terms = [operand for operand in self.operands if isinstance(operand, Pin)]
        grouped = group_stages(terms, scope.where, stages)
        names = dict(zip(terms, grouped.names, strict=True))
        return [self._combination(group, names, scope) for group in grouped.groups]

    @abstractmethod
    def contrasts(self, places: Sequence[Place]) -> tuple[Contrast, ...]:
        """What is tested of the operands at these places."""

    def _combination(self, group: Group, names: Mapping[Pin, str], scope: Scope) -> Combination:
        assert not isinstance(scope.at, Span)
        members = iter(group.members)
        series: list[Series] = []
        places = []
        metric = scope.selected.metric
        for operand in self.operands:
            if isinstance(operand, Constant):
                places.append(Place(str(operand), constant=operand.value))
                continue
            name = metric.short_name
            point = metric.name, scope.at
            if isinstance(operand, OtherNumber):
                other = scope.selected.other(operand.name, scope.at)
                if other == metric:
                    raise ClaimError(f"compares {other.short_name} with itself")
                name, point = other.short_name, (other.name, scope.at)
                stages = group.members[0]
            else:
                stages = next(members)
                name = names[operand] if isinstance(operand, Pin) else name
            places.append(Place(name, len(series)))
            series.append(Series(name, name, by_seed(stages), point))
        return Combination(group.axes, tuple(series), self.contrasts(places))

    def _check_fractions(self, scope: Scope) -> None:
        metric = scope.selected.metric
        self.check_amount(metric)
        if not metric.is_fraction:
            return
        for operand in self.operands:
            if isinstance(operand, Constant) and not 0 <= operand.value <= 1:
                raise ClaimError(
                    f"compares {metric.short_name} with {operand}, but it is between 0 and 1;"
                    f" a value of an axis is written axis={operand}"
                )


def by_seed(stages: Sequence[Stage]) -> Seeds:
    """The first of the stages under each seed."""
    found: dict[int | None, Stage] = {}
    for stage in stages:
        found.setdefault(stage.seed, stage)
    return found


def contrast(first: Place, second: Place, reference: Reference, side: Side) -> Contrast:
    """The statement that the first is on one side of the second, moved by a margin."""
    weights: dict[int, float] = {}
    null, words = reference.shift, []
    if first.series is None:
        null -= first.constant
    else:
        weights[first.series] = 1.0
        words.append(first.name)
    if second.series is None:
        null += reference.factor * second.constant
    else:
        weights[second.series] = -reference.factor
        factor = f"{reference.factor:.6g} · " if reference.is_ratio else ""
        words.append(f"− {factor}{second.name}")
    positive = second.series if reference.is_ratio else None
    return Contrast(" ".join(words), weights, null, side, positive)
