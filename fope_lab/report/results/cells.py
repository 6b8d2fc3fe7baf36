"""What the store holds of each stage of a sweep, read once for a whole report, and its cells.

A cell is one entry of a table: the stages of one section of the sweep file that have the same value
on every axis and differ only in their seed. Its interval is Student's t interval over the seeds,
mean ± t(0.975, n − 1) · s / √n, where s is the sample standard deviation. The interval covers the
variation between seeds, not the sampling error of a finite evaluation, which each value carries if
the evaluation gave it. A single seed has no interval. If a value is not finite, the cell has no
mean and no interval, and keeps all its values. report/build.py has the stages read, then the cells
built.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fope_lab.config.roles import MODEL, SELECTED, candidate_role, chosen_role
from fope_lab.stages.internal import Select
from fope_lab.stages.metric import (
    DamagedResultError,
    Measurement,
    Metric,
    MetricPoint,
    ResultRecord,
)
from fope_lab.statistics.intervals import MeanEstimate, estimate_mean
from fope_lab.store.attempts import TimeTaken
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.store.state import StageState, Status
from fope_lab.store.writer import Row
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import block_descendants, read_states, unfinished_parents


@dataclass(frozen=True)
class StageResult:
    """One stage, its state, and everything that a report needs from its folder."""

    stage: Stage
    folder: Path
    state: StageState
    rows: tuple[Row, ...]  # durable rows only
    record: ResultRecord  # its result.json; empty unless done
    taken: TimeTaken | None  # by all its attempts; None unless done
    started: float | None  # seconds since the epoch
    finished: float | None
    device: str | None  # what it ran on, by the name that its driver gives

    @property
    def trained_length(self) -> int | None:
        """The length in tokens that the model was last trained at; None if there is no model."""
        model = self.stage.model_spec
        return None if model is None else model.last_trained_length

    @property
    def model_parent(self) -> str | None:
        """The key of the stage that left the model which this one reads or goes on with. Of a
        selection it is the chosen candidate, and the first one until it has chosen."""
        stage = self.stage
        if not isinstance(stage.spec, Select):
            return stage.parents.get(MODEL)
        first = candidate_role(0, stage.spec.seed)
        return stage.parents.get(chosen_role(self.record.recorded, stage.spec.seed) or first)

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        return {metric.name: metric for metric in self.stage.spec.metrics()}

    @cached_property
    def measurements(self) -> Mapping[MetricPoint, Measurement]:
        """What the stage measured, by the metric's name and x; empty unless done."""
        return {(m.name, m.x): m for m in self.record.metrics if m.name in self.metrics}

    def value_at(self, point: MetricPoint) -> float | None:
        """The value of a metric, or of a number of an analysis, at a point; None if it has none."""
        measured = self.measurements.get(point)
        if measured is not None:
            return measured.value
        name, x = point
        return self.record.numbers.get(name) if x is None else None

    @property
    def choice(self) -> Any:
        """The value that a stage of kind `select` chose; None if it has not chosen yet."""
        return self.record.recorded.get(SELECTED, {}).get("value")


def read_stages(stages: Sequence[Stage], store: Store) -> tuple[StageResult, ...]:
    """Read every stage; `stages` come parents first."""
    store = StoreSnapshot.of(store)
    states = block_descendants(stages, read_states(stages, store))
    names = {stage.key: stage.label for stage in stages}
    results = []
    for stage in stages:
        state = states[stage.key]
        if state.status is Status.NOT_STARTED and (keys := unfinished_parents(stage, states)):
            state = replace(state, reason=f"waits for {', '.join(names[key] for key in keys)}")
        results.append(read_stage(stage, store.folder(stage.kind, stage.key), state))
    return tuple(results)


def by_key(results: Iterable[StageResult]) -> dict[str, StageResult]:
    """The results by the keys of their stages."""
    return {result.stage.key: result for result in results}


def group_by_section(results: Iterable[StageResult]) -> dict[str, list[StageResult]]:
    """Group the results by the stage's name in the sweep file, in its order."""
    groups: dict[str, list[StageResult]] = {}
    for result in results:
        groups.setdefault(result.stage.section, []).append(result)
    return groups


def unread(stage: Stage, state: StageState) -> StageResult:
    """A stage that has no result yet, or whose result is not asked for."""
    return StageResult(stage, Path(), state, (), ResultRecord(), None, None, None, None)


def read_stage(stage: Stage, folder: StageFolder, state: StageState) -> StageResult:
    """Read a stage that is in this state; one with a result of another shape is damaged."""
    content, record = folder.result(), ResultRecord()
    if content is not None:
        try:
            record = ResultRecord.parse(content)
        except DamagedResultError as error:
            reason = f"finished, but {folder.paths.result.name} is damaged: {error}"
            state = replace(state, status=Status.DAMAGED, reason=f"{reason}; run it with --redo")
    return StageResult(
        stage=stage,
        folder=folder.path,
        state=state,
        rows=tuple(folder.rows()),
        record=record,
        taken=folder.time_taken(),
        started=folder.started_at(),
        finished=folder.finished_at(),
        device=folder.device(),
    )


def chosen_keys(results: Iterable[StageResult]) -> frozenset[str]:
    """The keys of the candidates that stages of kind `select` chose."""
    return frozenset(
        result.stage.parents[role]
        for result in results
        if isinstance(spec := result.stage.spec, Select)
        and (role := chosen_role(result.record.recorded, spec.seed))
    )


CellKey = tuple[str, str, int | None]
"""The key of a cell's series, the name of its metric, and the point on its curve."""


@dataclass(frozen=True)
class SeedValue:
    """What the stage with `key` measured under one seed."""

    seed: int | None
    measurement: Measurement
    key: str

    @property
    def value(self) -> float:
        return self.measurement.value


@dataclass(frozen=True)
class MissingSeed:
    """A stage of a cell that has no value, and the reason."""

    seed: int | None
    key: str
    status: Status
    reason: str


@dataclass(frozen=True)
class Cell:
    """One entry of a table, over all seeds. `x` is the point on a curve, such as the context
    length; None for a single number."""

    section: str
    metric: Metric
    x: int | None
    axes: Mapping[str, Any]
    estimate: MeanEstimate
    values: tuple[SeedValue, ...]  # in the order of the seeds
    missing: tuple[MissingSeed, ...]
    trained_length: int | None
    embedding: str | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its stages; those with a value come first."""
        return (*(value.key for value in self.values), *(gap.key for gap in self.missing))

    @property
    def seeds(self) -> dict[int | None, str]:
        missing = {gap.seed: gap.key for gap in self.missing}
        return missing | {value.seed: value.key for value in self.values}

    @property
    def series(self) -> str:
        """The key that all cells of the same stages share."""
        return min(self.keys)

    @property
    def key(self) -> CellKey:
        return self.series, self.metric.name, self.x

    @property
    def single(self) -> Measurement | None:
        """The only value, if there is exactly one."""
        return self.values[0].measurement if len(self.values) == 1 else None


def build_cells(results: Sequence[StageResult]) -> tuple[Cell, ...]:
    """Build all cells in the order of the stages, including those without any value."""
    known = {
        section: dict.fromkeys(point for r in members for point in r.measurements)
        for section, members in group_by_section(results).items()
    }
    return tuple(
        _cell(seeds, point)
        for seeds in group_seeds(results)
        for point in _expected(seeds, known[seeds[0].stage.section])
    )


def group_seeds(results: Iterable[StageResult]) -> list[list[StageResult]]:
    """Group the stages that differ only in their seed, each group sorted by seed. No group holds a
    seed twice."""
    groups: dict[tuple[str, str, int], list[StageResult]] = {}
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for result in results:
        stage = result.stage
        place = (stage.section, canonical(stage.axes))
        groups.setdefault((*place, seen[(*place, stage.seed)]), []).append(result)
        seen[(*place, stage.seed)] += 1
    for group in groups.values():
        group.sort(key=lambda r: (r.stage.seed is None, r.stage.seed or 0))
    return list(groups.values())


def canonical(value: Any) -> str:
    """A value as JSON text, the same for equal values."""
    return json.dumps(json_value(value), sort_keys=True)


def json_value(value: Any) -> Any:
    """Convert a value to JSON: mappings to dicts, and numbers that JSON can't hold to words."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def _expected(seeds: Sequence[StageResult], known: Iterable[MetricPoint]) -> list[MetricPoint]:
    """The points that the stages measured, or that they declare and their siblings measured."""
    own = dict.fromkeys(point for result in seeds for point in result.measurements)
    if not own and not all(result.state.is_done for result in seeds):
        declared = {name: metric.xs or (None,) for name, metric in seeds[0].metrics.items()}
        own = dict.fromkeys((name, x) for name, x in known if x in declared.get(name, ()))
    return sorted(own, key=lambda point: (point[0], point[1] is not None, point[1] or 0))


def _cell(seeds: Sequence[StageResult], point: MetricPoint) -> Cell:
    values, missing = [], []
    for result in seeds:
        stage, measurement = result.stage, result.measurements.get(point)
        if measurement is not None:
            values.append(SeedValue(stage.seed, measurement, stage.key))
        else:
            reason = result.state.reason or "is done, but has no such value"
            missing.append(MissingSeed(stage.seed, stage.key, result.state.status, reason))
    first = seeds[0]
    return Cell(
        section=first.stage.section,
        metric=first.metrics[point[0]],
        x=point[1],
        axes=dict(first.stage.axes),
        estimate=estimate_mean([value.value for value in values]),
        values=tuple(values),
        missing=tuple(missing),
        trained_length=first.trained_length,
        embedding=first.stage.embedding,
    )
