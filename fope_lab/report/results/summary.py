"""The summary of a sweep: how many stages are done, what is missing, and the best results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.counted import counted
from fope_lab.report.results.cost import Cost, cost_of
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import LENGTH
from fope_lab.store import Status
from fope_lab.store.state import IMPORTANCE


@dataclass(frozen=True)
class Summary:
    """Counts of stages, the best results in words, and the stages that are missing."""

    total: int
    counts: Mapping[Status, int]  # without the statuses that no stage has
    seeds: tuple[int, ...]
    cost: Cost  # of all finished stages
    findings: tuple[str, ...]
    missing: tuple[str, ...]  # one line for each stage to be done that is not, failures first

    @property
    def headline(self) -> str:
        """The number of stages that are done, and the states of the others."""
        done, unneeded = (self.counts.get(s, 0) for s in (Status.DONE, Status.NOT_NEEDED))
        if unneeded and done + unneeded == self.total:
            return f"All {done} stages that are needed are done; {unneeded} are not needed."
        if done == self.total:
            return "The only stage is done." if done == 1 else f"All {done} stages are done."
        others = {status: n for status, n in self.counts.items() if status is not Status.DONE}
        rest = ", ".join(f"{n} {status}" for status, n in others.items())
        verb = "is" if self.total == 1 else "are"
        return f"{done} of {counted(self.total)} {verb} done; {rest}."

    @property
    def seeds_line(self) -> str:
        """The seeds, and what their number means for the results."""
        if len(self.seeds) == 1:
            return f"One seed ({self.seeds[0]}): no intervals, and differences may be chance."
        if not self.seeds:
            return "No training: no result depends on a seed."
        return f"{len(self.seeds)} seeds: {', '.join(map(str, self.seeds))}."


def summarise(results: Sequence[StageResult], groups: Sequence[MetricGroup]) -> Summary:
    """Summarise the stages of a sweep; the findings are those of `groups`."""
    counts = Counter(result.state.status for result in results)
    needed = [result for result in results if not result.state.is_unneeded]
    return Summary(
        total=len(results),
        counts={status: counts[status] for status in IMPORTANCE if counts[status]},
        seeds=tuple(sorted({r.stage.seed for r in needed if r.stage.seed is not None})),
        cost=cost_of(results),
        findings=tuple(text for group in groups for text in _findings(group)),
        missing=tuple(
            f"{result.stage.label}: {result.state.status}: {result.state.reason}"
            for result in sorted(needed, key=lambda result: IMPORTANCE.index(result.state.status))
            if not result.state.is_done
        ),
    )


def _findings(group: MetricGroup) -> list[str]:
    """For each panel of a curve: the best mean at the training length and at the longest length."""
    if group.metric.axis != LENGTH or group.metric.better is None:
        return []
    findings = []
    for panel, members in group.panels.items():
        xs = [x for x in group.xs if x is not None]
        trained_lengths = {series.trained_length for series in members}
        trained_length = trained_lengths.pop() if len(trained_lengths) == 1 else None
        shown = [x for x in (trained_length, xs[-1]) if x in xs]
        parts = [_best_at(group, members, x, trained_length) for x in dict.fromkeys(shown)]
        if parts := [part for part in parts if part]:
            name = f"{group.title}, {panel}" if panel else group.title
            findings.append(f"{name}: {'; '.join(parts)}.")
    return findings


def _best_at(
    group: MetricGroup, members: Sequence[Series], x: int, trained_length: int | None
) -> str:
    cells = {series.label: series.cells[x] for series in members if x in series.cells}
    means = {
        label: cell.estimate.mean for label, cell in cells.items() if cell.estimate.mean is not None
    }
    if len(means) < 2:
        return ""
    choose = min if group.metric.better == "lower" else max
    best = group.metric.format(choose(means.values()))
    labels = [label for label, mean in means.items() if group.metric.format(mean) == best]
    where = f"at {x}"
    if trained_length == x:
        where += ", the training length"
    elif trained_length:
        where += f", {x / trained_length:g} × the training length"
    if len(labels) == len(means):
        return f"{where}, all have {best}"
    if len(labels) == 1:
        best = group.metric.format(means[labels[0]], cells[labels[0]].estimate.half_width)
    return f"{where}, best mean {' and '.join(labels)} ({best})"
