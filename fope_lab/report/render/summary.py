"""What a report says first: how much of the sweep is done, what is missing, and what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.store import Status


@dataclass(frozen=True)
class Summary:
    """Counts, findings and gaps of a sweep."""

    total: int
    counts: Mapping[Status, int]  # those that occur
    seeds: tuple[int, ...]
    seconds: float  # wall time of all finished stages added up
    findings: tuple[str, ...]
    missing: tuple[str, ...]  # a line for each stage that is not done, failures first

    @property
    def headline(self) -> str:
        """How many stages of how many are done, and what became of the rest."""
        done = self.counts.get(Status.DONE, 0)
        if done == self.total:
            return f"All {self.total} stages are done."
        rest = ", ".join(
            f"{n} {state}" for state, n in self.counts.items() if state is not Status.DONE
        )
        return f"{done} of {self.total} stages are done; {rest}."

    @property
    def seeds_line(self) -> str:
        """How many seeds, and what that means for the numbers."""
        if len(self.seeds) == 1:
            return f"One seed ({self.seeds[0]}): no intervals, and differences may be chance."
        if not self.seeds:
            return "No training: nothing here depends on a seed."
        return f"{len(self.seeds)} seeds: {', '.join(map(str, self.seeds))}."


def summarise(readings: Sequence[StageResult], blocks: Sequence[MetricGroup]) -> Summary:
    """The summary of a sweep."""
    found = Counter(reading.state.status for reading in readings)
    return Summary(
        total=len(readings),
        counts={status: found[status] for status in Status if found[status]},
        seeds=tuple(sorted({r.stage.seed for r in readings if r.stage.seed is not None})),
        seconds=sum(r.seconds or 0.0 for r in readings),
        findings=tuple(text for block in blocks for text in _findings(block)),
        missing=tuple(
            f"{r.stage.label}: {r.state.status}: {r.state.reason}"
            for r in sorted(readings, key=lambda r: list(Status).index(r.state.status))
            if not r.state.is_done
        ),
    )


def _findings(block: MetricGroup) -> list[str]:
    """For each panel of a curve: the best mean at the trained length and at the longest one."""
    if block.metric.x != "length" or block.metric.better is None:
        return []
    findings = []
    for panel, lines in block.panels.items():
        xs = [x for x in block.xs if x is not None]
        trained = {line.train_length for line in lines}
        length = trained.pop() if len(trained) == 1 else None
        wanted = [x for x in (length, xs[-1]) if x in xs]
        parts = [_best_at(block, lines, x, length) for x in dict.fromkeys(wanted)]
        parts = [part for part in parts if part]
        if parts:
            name = f"{block.title}, {panel}" if panel else block.title
            findings.append(f"{name}: {'; '.join(parts)}.")
    return findings


def _best_at(block: MetricGroup, lines: Sequence[Series], x: int, length: int | None) -> str:
    cells = {line.label: line.cells[x] for line in lines if x in line.cells}
    means = {
        label: cell.estimate.mean for label, cell in cells.items() if cell.estimate.mean is not None
    }
    if len(means) < 2:
        return ""
    choose = min if block.metric.better == "lower" else max
    best = block.metric.format(choose(means.values()))
    labels = [label for label, mean in means.items() if block.metric.format(mean) == best]
    where = f"at {x}"
    if length == x:
        where += ", the trained length"
    elif length:
        where += f", {x / length:g} × the trained length"
    if len(labels) == len(means):
        return f"{where}, all have {best}"
    if len(labels) == 1:
        best = block.metric.format(means[labels[0]], cells[labels[0]].estimate.half_width)
    return f"{where}, best mean {' and '.join(labels)} ({best})"
