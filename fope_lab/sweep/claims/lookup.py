"""Look up which stages of a sweep measure what a claim, a table or a figure names."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.problems import did_you_mean, name_list, shown
from fope_lab.stages.labels import corpus_label
from fope_lab.stages.metric import Metric, number_metric
from fope_lab.sweep.claims.statement import ClaimError, Quantity
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
