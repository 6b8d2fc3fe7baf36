"""Which tables and figures a sweep file asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fope_lab.report.results.layout import MetricGroup
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.sweep.claims.grammar import parse_quantity
from fope_lab.sweep.claims.selection import Catalogue
from fope_lab.sweep.graph import Stage

ByName = Mapping[str, Sequence[Stage]]


def requested_groups(
    blocks: Sequence[MetricGroup], texts: Sequence[str] | None, by_name: ByName
) -> tuple[MetricGroup, ...]:
    """The blocks that `[stage.]metric[(corpus)]` name, in this order; all without such texts.

    A metric that says the same as another one of its stage is shown as that.
    """
    if texts is None:
        return tuple(blocks)
    known = {(block.stage, block.metric.name): block for block in blocks}
    found = {}
    for stage, metric in _named(texts, by_name):
        for name in (metric.name, metric.shown_as or metric.name):
            if (block := known.get((stage, name))) is not None:
                found[stage, name] = block
    return tuple(found.values())


def requested_trainings(
    readings: Sequence[StageResult], texts: Sequence[str] | None, by_name: ByName
) -> tuple[StageResult, ...]:
    """The stages whose losses along training are to be drawn: those that the texts name."""
    if texts is None:
        return tuple(readings)
    stages = {stage for stage, _ in _named(texts, by_name)}
    return tuple(r for r in readings if r.stage.section in stages and r.stage.spec.trains)


def _named(texts: Sequence[str], by_name: ByName) -> list[tuple[str, Metric]]:
    """(stage, metric) of each text of a checked sweep file."""
    catalogue = Catalogue(by_name)
    found = [catalogue.find(parse_quantity(text)) for text in texts]
    return [(selected.stage, selected.metric) for selected in found]
