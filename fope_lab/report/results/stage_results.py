"""What the store holds of each stage of a sweep, read once for a whole report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fope_lab.data.roles import MODEL, candidate_role
from fope_lab.stages import Select
from fope_lab.stages.internal import SELECTED, chosen_role
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import DamagedResultError, Measurement, MetricPoint, ResultRecord
from fope_lab.store import Row, StageFolder, StageState, Status, Store
from fope_lab.store.attempts import TimeTaken
from fope_lab.store.root import StoreSnapshot
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
