"""The metrics that a sweep file requests for its tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fope_lab.report.results.layout import GroupKey, MetricGroup
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.sweep.claims.grammar import parse_quantity
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.graph import Stage

StagesBySection = Mapping[str, Sequence[Stage]]


def requested_groups(
    groups: Sequence[MetricGroup], texts: Sequence[str] | None, by_section: StagesBySection
) -> tuple[MetricGroup, ...]:
    """The groups that texts of the form `[stage.]metric[(corpus)]` name, in the order of the texts.

    Without texts, all groups. If another metric of the section stands for the named one, such as
    perplexity for loss, its group is returned.
    """
    if texts is None:
        return tuple(groups)
    by_key = {group.key: group for group in groups}
    requested: dict[GroupKey, MetricGroup] = {}
    for section, metric in _named(texts, by_section):
        own = by_key.get((section, metric.name))
        group = own or by_key.get((section, metric.shown_as or metric.name))
        if group is not None:
            requested[group.key] = group
    return tuple(requested.values())


def requested_keys(texts: Sequence[str] | None, by_section: StagesBySection) -> set[GroupKey]:
    """The section and the name of each metric that the texts name."""
    return {(section, metric.name) for section, metric in _named(texts or (), by_section)}


def requested_trainings(
    results: Sequence[StageResult], texts: Sequence[str] | None, by_section: StagesBySection
) -> tuple[StageResult, ...]:
    """The training stages that the texts name; without texts, all stages."""
    if texts is None:
        return tuple(results)
    sections = {section for section, _ in _named(texts, by_section)}
    return tuple(r for r in results if r.stage.section in sections and r.stage.spec.trains)


def _named(texts: Sequence[str], by_section: StagesBySection) -> list[tuple[str, Metric]]:
    """The section and the metric of each text of a checked sweep file."""
    catalogue = Catalogue(by_section)
    selections = [catalogue.find(parse_quantity(text)) for text in texts]
    return [(selected.stage, selected.metric) for selected in selections]
