"""Statements about one model along an axis: `grows`, `grows at most 5%`, `stays within 5%`.

The axis is that of the curve, over the points in `@128..1024`, or an axis of the sweep's grid that
has numbers as its values, `with learning_rate`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fope_lab.config.problems import name_list
from fope_lab.sweep.claims.axes import group_stages, numeric_axis
from fope_lab.sweep.claims.contrast import Combination, Contrast, Series
from fope_lab.sweep.claims.operands import (
    Constant,
    Itself,
    Operand,
    OtherNumber,
    Pin,
    settle,
    write_operands,
)
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.statements.base import Scope, Span, Statement
from fope_lab.sweep.claims.statements.of_operands import by_seed
from fope_lab.sweep.graph import Stage


@dataclass(frozen=True)
class Course:
    """The points of an axis that a model's numbers run over, ascending.

    `name` is the model's, and `names` are those of its numbers.
    """

    name: str
    xs: tuple[float, ...]
    names: tuple[str, ...]
    axis: str


@dataclass(frozen=True)
class AlongStatement(Statement):
    """A statement about the numbers of `subject` along the curve, or along the grid's axis
    `along`."""

    needs_next: ClassVar[str] = "'with' and an axis, or the end"

    subject: Operand
    along: str | None

    def __post_init__(self) -> None:
        if isinstance(self.subject, Constant | OtherNumber):
            raise ClaimError(f"{self.subject} is a constant, which does not change")

    @abstractmethod
    def contrasts(self, course: Course) -> tuple[Contrast, ...]:
        """What is tested of the numbers along the axis."""

    @abstractmethod
    def words(self) -> str:
        """What the claim says of its subject, as it is written."""

    def __str__(self) -> str:
        (subject,) = write_operands([self.subject])
        axis = "" if self.along is None else f" with {self.along}"
        return f"{subject} {self.words()}{axis}".lstrip()

    def compare(self, scope: Scope) -> Sequence[Combination]:
        """One combination for each group of stages. Raises ClaimError."""
        self.check_amount(scope.selected.metric)
        terms = [self.subject] if isinstance(self.subject, Pin) else []
        if self.along is not None:
            return self._along_grid(scope, self.along, terms)
        if not isinstance(scope.at, Span):
            raise ClaimError(
                f"{self.words()!r} runs along an axis: needs a range of points, as in @128..1024,"
                " or an axis of the grid, as in 'grows with learning_rate'"
            )
        return self._along_curve(scope, scope.at, terms)

    def _along_curve(self, scope: Scope, span: Span, terms: list[Pin]) -> list[Combination]:
        selected = scope.selected
        xs = [x for x in selected.xs if span.first <= x <= span.last]
        name = selected.metric.short_name
        if not selected.xs:
            raise ClaimError(f"{name} is a single number, and has no @{span}")
        if len(xs) < 2:
            raise ClaimError(
                f"{selected.stage} measures {name} at {len(xs)} point{'s' * (len(xs) != 1)} in"
                f" {span}, needs at least two (at: {selected.few_xs})"
            )
        everywhere = set.intersection(*({id(stage) for stage in selected.at(x)} for x in xs))
        stages = [stage for stage in selected.at(xs[0]) if id(stage) in everywhere]
        if not stages:
            raise ClaimError(f"no model has {name} at all points in {span} (at: {selected.few_xs})")
        grouped = group_stages(terms, scope.where, stages)
        subject = grouped.names[0] if grouped.names else name
        combinations = []
        for group in grouped.groups:
            names = [f"{subject}@{x}" for x in xs]
            seeds = by_seed(group.members[0])
            series = [
                Series(at, subject, seeds, (selected.metric.name, x))
                for at, x in zip(names, xs, strict=True)
            ]
            course = Course(subject, tuple(map(float, xs)), tuple(names), selected.metric.by)
            combinations.append(Combination(group.axes, tuple(series), self.contrasts(course)))
        return combinations

    def _along_grid(self, scope: Scope, along: str, terms: list[Pin]) -> list[Combination]:
        selected = scope.selected
        if isinstance(scope.at, Span):
            raise ClaimError(f"runs along both @{scope.at} and {along}; needs one of them")
        measuring = selected.at(scope.at)
        path = numeric_axis(along, scope.where, measuring)
        grouped = group_stages(terms, scope.where, measuring, along=path)
        subject = grouped.names[0] if grouped.names else selected.metric.short_name
        axis = path.rpartition(".")[2]
        combinations = []
        for group in grouped.groups:
            by_value: dict[float, list[Stage]] = {}
            for stage in group.members[0]:
                if path in stage.axes:
                    by_value.setdefault(float(stage.axes[path]), []).append(stage)
            xs = sorted(by_value)
            if len(xs) < 2:
                continue
            names = tuple(f"{subject}[{axis}={x:g}]" for x in xs)
            series = [
                Series(name, name, by_seed(by_value[x]), (selected.metric.name, scope.at))
                for name, x in zip(names, xs, strict=True)
            ]
            course = Course(subject, tuple(xs), names, axis)
            combinations.append(Combination(group.axes, tuple(series), self.contrasts(course)))
        if not combinations:
            of = f" of {name_list(map(str, terms))}" if terms else ""
            raise ClaimError(f"no model{of} has two values of {along} with all else equal")
        return combinations


def read_along(subject: Operand, reader: Reader) -> tuple[Operand, str | None]:
    """The settled subject, and the axis after `with`, if there is one. Raises ClaimError."""
    settled = subject if isinstance(subject, Itself) else settle([subject])[0]
    return settled, reader.path("an axis after 'with'") if reader.words("with") else None
