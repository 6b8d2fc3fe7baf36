"""The summary of a sweep: how many stages are done, what is missing, and the best results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.problems import counted
from fope_lab.report.results.cost import Cost, cost_of
from fope_lab.report.results.stage_results import StageResult
from fope_lab.report.results.training_speed import TimeLost, time_lost
from fope_lab.store import Status
from fope_lab.store.state import IMPORTANCE


@dataclass(frozen=True)
class Summary:
    """Counts of stages, the best results in words, and the stages that are missing."""

    total: int
    counts: Mapping[Status, int]  # without the statuses that no stage has
    seeds: tuple[int, ...]
    cost: Cost  # of all finished stages
    time_lost: TimeLost | None  # of the trainings among them that record it
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


def summarise(results: Sequence[StageResult], findings: Sequence[str]) -> Summary:
    """Summarise the stages of a sweep, with what was found (compare/findings.py)."""
    counts = Counter(result.state.status for result in results)
    needed = [result for result in results if not result.state.is_unneeded]
    return Summary(
        total=len(results),
        counts={status: counts[status] for status in IMPORTANCE if counts[status]},
        seeds=tuple(sorted({r.stage.seed for r in needed if r.stage.seed is not None})),
        cost=cost_of(results),
        time_lost=time_lost(results),
        findings=tuple(findings),
        missing=tuple(
            f"{result.stage.label}: {result.state.status}: {result.state.reason}"
            for result in sorted(needed, key=lambda result: IMPORTANCE.index(result.state.status))
            if not result.state.is_done
        ),
    )
