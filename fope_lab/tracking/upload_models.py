"""Sends the models that finished stages left, and links the runs that read them.

A run's tags say which checkpoint MLflow has as its model, and which model it is linked to. They are
sent last, so whatever was cut off is done again.
"""

from __future__ import annotations

from fope_lab.data.roles import MODEL
from fope_lab.store import StageFolder, Store
from fope_lab.tracking.experiment import Experiment, Run
from fope_lab.tracking.inputs import datasets
from fope_lab.tracking.models import (
    CHECKPOINT,
    MODEL_ID,
    leaves_model,
    measured_points,
    model_record,
    reads_same_model,
)
from fope_lab.tracking.points import result_rows
from fope_lab.tracking.view import Outline, StageOutline, StageTimeline


class ModelUpload:
    """Brings the models of a sweep in its `experiment` up to date with the store."""

    def __init__(self, outline: Outline, experiment: Experiment, store: Store) -> None:
        self._outline, self._experiment, self._store = outline, experiment, store
        self._stages = {stage.key: stage for stage in outline.stages}

    def stage(self, stage: StageOutline, folder: StageFolder, now: StageTimeline, run: Run) -> None:
        """Send the model of a finished stage, and the link to the model that the stage read."""
        with self._experiment.models.if_known():
            self._send(stage, now, run)
            self._link(stage, folder, now, run)

    def _send(self, stage: StageOutline, now: StageTimeline, run: Run) -> None:
        record = model_record(self._outline, stage, self._stages, now.checkpoint)
        if record is None or not self._experiment.models.known:
            return
        if run.model_id is not None and run.tags.get(CHECKPOINT) == record.checkpoint:
            return
        run.model_id = self._experiment.models.bring(run.model_id, run.run_id, record)
        run.log((), {CHECKPOINT: record.checkpoint}, {})

    def _link(self, stage: StageOutline, folder: StageFolder, now: StageTimeline, run: Run) -> None:
        parent = self._experiment.runs.get(stage.parents.get(MODEL, ""))
        if parent is None or parent.model_id in (None, run.tags.get(MODEL_ID)):
            return
        if not reads_same_model(stage, self._stages, self._store):
            return
        run.add_model(parent.model_id)
        if not leaves_model(stage):
            rows = folder.rows()
            assert now.ended is not None
            rows = [*rows, *result_rows(folder.result() or {}, rows, now.ended)]
            data = datasets(stage, self._stages, self._store)
            run.log_of_model(parent.model_id, measured_points(rows), data[0] if data else None)
        run.log((), {MODEL_ID: parent.model_id}, {})
