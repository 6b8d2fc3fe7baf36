"""Sends the cells of a sweep's report: a run for each, with links to its members and back.

MLflow can't delete points. So the run of a cell whose estimates have changed, because a seed was
added, is deleted, and another one takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from fope_lab.tracking.cells import (
    CellRecord,
    cell_names,
    cell_parameters,
    cell_points,
    cell_tags,
)
from fope_lab.tracking.description import Descriptions
from fope_lab.tracking.experiment import Experiment
from fope_lab.tracking.view import CELL, Outline

CONTENT = "content"
"""The tag with the digest of the estimates that a run is made for."""


class CellUpload:
    """Brings the runs of a sweep's cells up to date with `cells`, those of its last report."""

    def __init__(
        self, outline: Outline, experiment: Experiment, cells: Sequence[CellRecord]
    ) -> None:
        self._outline, self._experiment = outline, experiment
        self._descriptions = Descriptions(outline, experiment)
        self._cells = {
            outline.cell_keys[cell.measured[0]]: cell
            for cell in cells
            if all(key in outline.cell_keys for key in (*cell.measured, *cell.missing))
        }
        self._names = cell_names(outline, self._cells)

    def send(self) -> None:
        """Send what the experiment lacks of the cells, and remove the runs of other cells."""
        runs = self._experiment.runs
        others = {key for key, run in runs.items() if run.tags.get("kind") == CELL}
        for key in sorted(others - self._cells.keys()):
            self._experiment.remove(key)
        for key, cell in self._cells.items():
            self._send(key, cell)
        for stage in self._outline.stages:
            cell_key = self._outline.cell_keys[stage.key]
            if stage.key in runs and cell_key in runs:
                tags = {"cell": cell_key} | self._descriptions.of_stage(stage)
                runs[stage.key].log((), tags, {})

    def _send(self, key: str, cell: CellRecord) -> None:
        experiment = self._experiment
        wanted = cell_tags(self._outline, cell) | {
            "mlflow.runName": self._names[key],
            "key": key,
            "store": experiment.store_id,
            CONTENT: cell.digest,
        }
        wanted |= self._descriptions.of_cell(key, cell.measured)
        run = experiment.runs.get(key)
        if run is None:
            run = experiment.create(key, wanted, cell.time)
        elif run.tags.get(CONTENT) != cell.digest:
            run = experiment.replace(key, wanted, cell.time)
        if not run.is_finished:
            run.log(cell_points(cell), wanted, cell_parameters(self._outline, cell))
            run.set_status("FINISHED", cell.time)
        run.log((), wanted, {})
