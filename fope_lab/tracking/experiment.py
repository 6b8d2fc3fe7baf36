"""An experiment and its runs, and what the server already has of each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fope_lab.tracking.causes import concerns_one_run
from fope_lab.tracking.inputs import Dataset
from fope_lab.tracking.logged_models import LoggedModels
from fope_lab.tracking.patience import Patience
from fope_lab.tracking.points import Point
from fope_lab.tracking.view import SUMMARY, Outline, StageTimeline

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment as MlflowExperiment
    from mlflow.entities import Run as MlflowRun

ENTRIES_PER_BATCH = 1_000
"""MLflow's limit for the metrics, parameters and tags of a request."""
PARAMS_PER_BATCH = TAGS_PER_BATCH = 100
"""MLflow's limits for the parameters and for the tags of a request."""


class Run:
    """A run, and what the server has of it: as it was loaded, updated by everything sent since.

    `sent` is the number of a stage's rows that are known to have arrived, with their digest.
    `model_id` is the id of the model that the run has made, or None.
    """

    def __init__(self, client: MlflowClient, run: MlflowRun, patience: Patience) -> None:
        self._client, self._patience = client, patience
        self.run_id: str = run.info.run_id
        self.tags: dict[str, str] = dict(run.data.tags)
        self.sent: tuple[int, str] | None = None
        self._artifacts: str = run.info.artifact_uri
        self._params: set[str] = set(run.data.params)
        self._metrics: set[str] = set(run.data.metrics)
        self._status: str = run.info.status
        self._ended: int | None = run.info.end_time
        inputs = run.inputs.dataset_inputs if run.inputs else []
        self._datasets = {(one.dataset.name, one.dataset.digest) for one in inputs}
        models = run.outputs.model_outputs if run.outputs else []
        self.model_id: str | None = models[0].model_id if models else None

    def log(
        self, points: Sequence[Point], tags: Mapping[str, str], params: Mapping[str, str]
    ) -> None:
        """Send points, the tags that changed, and the parameters that the run does not have."""
        from mlflow.entities import Metric, Param, RunTag

        changed = [RunTag(k, v) for k, v in tags.items() if self.tags.get(k) != v]
        missing = [Param(k, v) for k, v in params.items() if k not in self._params]
        metrics = [Metric(p.name, p.value, p.timestamp, p.step) for p in points]
        while changed or missing or metrics:
            part = changed[:TAGS_PER_BATCH], missing[:PARAMS_PER_BATCH]
            room = ENTRIES_PER_BATCH - sum(map(len, part))
            self._client.log_batch(
                self.run_id, tags=part[0], params=part[1], metrics=metrics[:room]
            )
            del changed[:TAGS_PER_BATCH], missing[:PARAMS_PER_BATCH], metrics[:room]
        self.tags.update(tags)
        self._params.update(params)
        self._metrics.update(point.name for point in points)

    @property
    def metrics(self) -> Set[str]:
        """The names of the metrics that the run has."""
        return self._metrics

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended well, which is the last thing that is sent of it."""
        return self._status == "FINISHED"

    def remove_tag(self, name: str) -> None:
        """Remove a tag from the run if it has the tag."""
        if name in self.tags:
            self._client.delete_tag(self.run_id, name)
            del self.tags[name]

    def points(self) -> set[tuple[str, int, int]]:
        """The (name, step, timestamp) of every point that the server has; asks the server."""
        return {
            (name, metric.step, metric.timestamp)
            for name in self._metrics
            for metric in self._client.get_metric_history(self.run_id, name)
        }

    def add_file(self, path: Path, folder: str | None = None) -> None:
        """Add or replace the artifact that has the file's name, in a folder if it is given."""
        with self._patience.sending(path.stat().st_size):
            self._client.log_artifact(self.run_id, str(path), folder)

    def keep_files(self, folder: str, names: Collection[str]) -> None:
        """Remove the artifacts in a folder but those with these names, if the server allows it."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from requests import HTTPError

        present = [file.path for file in self._client.list_artifacts(self.run_id, folder)]
        others = [path for path in present if PurePosixPath(path).name not in names]
        if not others:
            return
        repository = get_artifact_repository(self._artifacts, self._client.tracking_uri)
        for path in others:
            with self._patience.asking(), contextlib.suppress(NotImplementedError, HTTPError):
                repository.delete_artifacts(path)

    def add_text(self, name: str, text: str) -> None:
        """Add or replace the artifact `name`, unless it would be empty."""
        if text:
            with self._patience.sending(len(text.encode())):
                self._client.log_text(self.run_id, text, name)

    def add_datasets(self, datasets: Sequence[Dataset]) -> None:
        """Add the datasets that the run does not have yet as its inputs."""
        from mlflow.entities import Dataset as MlflowDataset
        from mlflow.entities import DatasetInput, InputTag

        missing = [one for one in datasets if (one.name, one.digest) not in self._datasets]
        if not missing:
            return
        inputs = [
            DatasetInput(
                MlflowDataset(one.name, one.digest, "local", json.dumps({"uri": one.place})),
                [InputTag("mlflow.data.context", one.context)],
            )
            for one in missing
        ]
        self._client.log_inputs(self.run_id, inputs)
        self._datasets.update((one.name, one.digest) for one in missing)

    def add_model(self, model_id: str) -> None:
        """Add a model as an input of the run."""
        from mlflow.entities import LoggedModelInput

        self._client.log_inputs(self.run_id, models=[LoggedModelInput(model_id)])

    def log_of_model(self, model_id: str, points: Sequence[Point], dataset: Dataset | None) -> None:
        """Send points that the run has as those of a model, measured on a dataset if it is known.

        Both have each point once, however often it is sent.
        """
        from mlflow.entities import Metric

        data = {} if dataset is None else {"dataset_name": dataset.name}
        data |= {} if dataset is None else {"dataset_digest": dataset.digest}
        metrics = [
            Metric(p.name, p.value, p.timestamp, p.step, model_id=model_id, **data) for p in points
        ]
        for start in range(0, len(metrics), ENTRIES_PER_BATCH):
            part = metrics[start : start + ENTRIES_PER_BATCH]
            self._client.log_batch(self.run_id, metrics=part)

    def set_status(self, status: str, ended: int | None) -> None:
        """Set the status, and the end (ms since 1970) if it is known."""
        if ended is not None and (self._status, self._ended) != (status, ended):
            self._client.set_terminated(self.run_id, status, ended)
            self._ended = ended
        elif self._status != status:
            self._client.update_run(self.run_id, status=status)
        self._status = status


class Experiment:
    """An experiment and the runs of a store in it: those of stages and cells by key, and the
    report's run under SUMMARY.

    `settled` holds, by key, the progress of a stage when its run was last brought up to date, and
    `marks` which file DONE it had then. `cells` says with which cells, and with which runs, the
    runs of cells were last brought up to date. All three are of one edition of the sweep.
    """

    def __init__(
        self, client: MlflowClient, entity: MlflowExperiment, store_id: str, patience: Patience
    ) -> None:
        self._client, self._patience = client, patience
        self.experiment_id: str = entity.experiment_id
        self.created: int = entity.creation_time
        self.store_id = store_id
        self.models = LoggedModels(client, entity.experiment_id)
        self._tags: dict[str, str] = dict(entity.tags)
        self.runs: dict[str, Run] = {}
        self.settled: dict[str, StageTimeline] = {}
        self.marks: dict[str, tuple[int, int] | None] = {}
        self.cells: tuple[object, Set[str]] | None = None
        self._outline: Outline | None = None

    def start(self, outline: Outline) -> None:
        """Begin to bring the runs up to date with `outline`: all of them, if it was another one."""
        if self._outline != outline:
            self.settled, self.marks, self.cells = {}, {}, None
            self._outline = outline

    def is_same(self, other: Experiment) -> bool:
        """Whether both are one experiment, rather than one that was made again under its name."""
        mine, others = (self.experiment_id, self.created), (other.experiment_id, other.created)
        return mine == others and self.store_id == other.store_id

    def set_tag(self, name: str, value: str) -> None:
        """Set a tag of the experiment; one that the server refuses is tried once."""
        if self._tags.get(name) == value:
            return
        self._tags[name] = value
        try:
            self._client.set_experiment_tag(self.experiment_id, name, value)
        except Exception as error:
            if not concerns_one_run(error):
                raise

    def remove_tag(self, name: str) -> None:
        """Remove a tag of the experiment, if the server allows it."""
        if self._tags.pop(name, None) is None:
            return
        try:
            self._client.delete_experiment_tag(self.experiment_id, name)
        except Exception as error:
            if not concerns_one_run(error):
                raise

    def create(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Create a run that started at `started` (ms since 1970)."""
        made = self._client.create_run(self.experiment_id, start_time=started, tags=dict(tags))
        run = self.runs[key] = Run(self._client, made, self._patience)
        return run

    def replace(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Delete a run, which MLflow can restore, and create an empty run in its place."""
        run = self.runs[key]
        if run.model_id is not None:
            self.models.retire(run.model_id, run.run_id)
        self._client.delete_run(run.run_id)
        return self.create(key, tags, started)

    @property
    def run_ids(self) -> Set[str]:
        """The ids of all runs."""
        return {run.run_id for run in self.runs.values()}

    def remove(self, key: str) -> None:
        """Delete a run, which MLflow can restore."""
        self._client.delete_run(self.runs.pop(key).run_id)

    def load(self) -> None:
        """Load the runs of the store from the server, one for each key."""
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id],
                filter_string=f"tags.store = '{self.store_id}'",
                max_results=1_000,
                page_token=token,
            )
            for entity in page:
                run = Run(self._client, entity, self._patience)
                key = _key(run.tags)
                if key is None:
                    continue
                if key in self.runs:  # a creation timed out and was repeated, but both arrived
                    self._client.delete_run(run.run_id)
                else:
                    self.runs[key] = run
            token = page.token
            if not token:
                return


def _key(tags: Mapping[str, str]) -> str | None:
    """The key of a run with these tags; None if a user has removed the tag `key` of a stage's run.

    The report's run has neither of the tags `key` and `stage`. The tag `kind` is not asked, since a
    user may have edited it.
    """
    return tags.get("key", None if "stage" in tags else SUMMARY)
