"""An experiment and its runs, and what the server already has of each."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from fope_lab.store.checkpoint import Checkpoint
from fope_lab.tracking.client import Patience, concerns_one_run
from fope_lab.tracking.outline import Outline
from fope_lab.tracking.stage_run import CHECKPOINT, MODEL_ID, SUMMARY, Dataset, Timeline

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment as MlflowExperiment
    from mlflow.entities import Run as MlflowRun

PointId = tuple[str, int, int]
"""The name, step and timestamp of a point, which identify it within a run: the value follows."""
ENTRIES_PER_BATCH = 1_000
"""MLflow's limit for the metrics, parameters and tags of a request."""
PARAMS_PER_BATCH = TAGS_PER_BATCH = 100
"""MLflow's limits for the parameters and for the tags of a request."""
WITHOUT_MODELS = ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED", "FEATURE_DISABLED")
"""The error codes of a server that has no models, because it is too old, say."""


class Point(NamedTuple):
    """A point of a metric as MLflow stores it; `timestamp` is in ms since 1970."""

    name: str
    step: int
    timestamp: int
    value: float

    @property
    def id(self) -> PointId:
        return self.name, self.step, self.timestamp


class Run:
    """A run, and what the server has of it: as it was loaded, updated by everything sent since."""

    def __init__(self, client: MlflowClient, run: MlflowRun, patience: Patience) -> None:
        self._client, self._patience = client, patience
        self.run_id: str = run.info.run_id
        self.tags: dict[str, str] = dict(run.data.tags)
        self._points: set[PointId] | None = None  # unknown
        self._artifacts: str = run.info.artifact_uri
        self._params: set[str] = set(run.data.params)
        self.metrics: set[str] = set(run.data.metrics)
        self._status: str = run.info.status
        self._ended: int | None = run.info.end_time
        inputs = run.inputs.dataset_inputs if run.inputs else []
        self._datasets = {(one.dataset.name, one.dataset.digest) for one in inputs}
        outputs = run.outputs.model_outputs if run.outputs else []
        self.made_models = {one.model_id for one in outputs}

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
        self.metrics.update(point.name for point in points)
        if self._points is not None:
            self._points.update(point.id for point in points)

    def remove_tag(self, name: str) -> None:
        """Remove a tag from the run if it has the tag."""
        if name in self.tags:
            self._client.delete_tag(self.run_id, name)
            del self.tags[name]

    def points(self) -> Set[PointId]:
        """Every point that the server has. It is asked once; this process knows what it sends."""
        if self._points is None:
            self._points = {
                (name, metric.step, metric.timestamp)
                for name in self.metrics
                for metric in self._client.get_metric_history(self.run_id, name)
            }
        return self._points

    def forget_points(self) -> None:
        """Free the memory of the points of a run that gets no more."""
        self._points = None

    def add_file(self, path: Path, folder: str | None = None) -> None:
        """Add or replace the artifact that has the file's name, in a folder if it is given."""
        with self._patience.sending(path.stat().st_size):
            self._client.log_artifact(self.run_id, str(path), folder)

    def keep_files(self, folder: str, names: Collection[str]) -> None:
        """Remove the artifacts in a folder but those with these names, if the server allows it."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from requests import HTTPError

        present = [file.path for file in self._client.list_artifacts(self.run_id, folder)]
        repository = get_artifact_repository(self._artifacts, self._client.tracking_uri)
        for path in present:
            if PurePosixPath(path).name not in names:
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

    def add_read_model(
        self, model_id: str, measured: Sequence[Point], dataset: Dataset | None
    ) -> None:
        """Add a model as the input of the run, and the points that the run measured of it.

        The tag MODEL_ID, which is sent last, says that all of it has arrived.
        """
        from mlflow.entities import LoggedModelInput, Metric

        data = dataset and {"dataset_name": dataset.name, "dataset_digest": dataset.digest}
        metrics = [
            Metric(p.name, p.value, p.timestamp, p.step, model_id=model_id, **(data or {}))
            for p in measured
        ]
        for start in range(0, len(metrics), ENTRIES_PER_BATCH):
            part = metrics[start : start + ENTRIES_PER_BATCH]
            self._client.log_batch(self.run_id, metrics=part)
        self._client.log_inputs(self.run_id, models=[LoggedModelInput(model_id)])
        self.log((), {MODEL_ID: model_id}, {})

    def set_status(self, status: str, ended: int | None) -> None:
        """Set the status, and the end (ms since 1970) if it is known."""
        if ended is not None and (self._status, self._ended) != (status, ended):
            self._client.set_terminated(self.run_id, status, ended)
            self._ended = ended
        elif self._status != status:
            self._client.update_run(self.run_id, status=status)
        self._status = status


class Experiment:
    """An experiment and the runs of a store in it, by the key of the stage, or SUMMARY.

    `models` are those that the runs made, by the ids of the runs; None if the server has no models.
    `settled` holds, by key, the progress of a stage and its file DONE when its run was last brought
    up to date with the `outline`. One that was made again under its name has another `identity`.
    """

    def __init__(
        self, client: MlflowClient, entity: MlflowExperiment, store_id: str, patience: Patience
    ) -> None:
        self._client, self._patience = client, patience
        self.experiment_id: str = entity.experiment_id
        self.created: int = entity.creation_time
        self.store_id = store_id
        self._tags: dict[str, str] = dict(entity.tags)
        self.runs: dict[str, Run] = {}
        self.models: dict[str, str] | None = {}
        self.settled: dict[str, tuple[Timeline, object]] = {}
        self.outline: Outline | None = None
        self.identity = entity.experiment_id, entity.creation_time, store_id

    def set_tag(self, name: str, value: str) -> None:
        """Set a tag of the experiment; one that the server refuses is tried once."""
        if self._tags.get(name) == value:
            return
        self._tags[name] = value
        with _refusals_ignored():
            self._client.set_experiment_tag(self.experiment_id, name, value)

    def remove_tag(self, name: str) -> None:
        """Remove a tag of the experiment, if the server allows it."""
        if self._tags.pop(name, None) is not None:
            with _refusals_ignored():
                self._client.delete_experiment_tag(self.experiment_id, name)

    def create(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Create a run that started at `started` (ms since 1970)."""
        made = self._client.create_run(self.experiment_id, start_time=started, tags=dict(tags))
        run = self.runs[key] = Run(self._client, made, self._patience)
        return run

    def replace(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Delete a run and its model; create an empty run."""
        old = self.runs[key].run_id
        self._client.delete_run(old)
        run = self.create(key, tags, started)
        model = (self.models or {}).pop(old, None)
        if model is not None:
            self._client.delete_logged_model(model)
        return run

    def log_model(
        self, run: Run, checkpoint: Checkpoint, kind: str, params: Mapping[str, str]
    ) -> None:
        """Make the model of a run, or update the place of its checkpoint; weights stay there."""
        from mlflow.entities import LoggedModelOutput

        if self.models is None:
            return
        place = {CHECKPOINT: str(checkpoint.path)}
        model_id = self.models.get(run.run_id)
        if model_id is None:
            own = {name: text for name, text in run.tags.items() if not name.startswith("mlflow.")}
            made = self._client.create_logged_model(
                self.experiment_id,
                re.sub(r"[/:.%\"']", "_", run.tags["mlflow.runName"]),  # what MLflow refuses
                run.run_id,
                tags={**own, **place, "mlflow.model.isExternal": "true"},
                params=dict(params),
                model_type=kind,
            )
            model_id = str(made.model_id)
            self._client.finalize_logged_model(model_id, "READY")
            self.models[run.run_id] = model_id
        elif run.tags.get(CHECKPOINT) != place[CHECKPOINT]:
            self._client.set_logged_model_tags(model_id, place)
        if model_id not in run.made_models:
            output = LoggedModelOutput(model_id, checkpoint.step)
            self._client.log_outputs(run.run_id, [output])
            run.made_models.add(model_id)
        run.log((), place, {})

    def load(self) -> None:
        """Load the runs of the store from the server, one for each key."""
        ours = f"tags.store = '{self.store_id}'"
        found = functools.partial(
            self._client.search_runs, [self.experiment_id], filter_string=ours, max_results=1_000
        )
        for entity in _all_pages(found):
            run = Run(self._client, entity, self._patience)
            # The report's run has neither of the tags `key` and `stage`; the run of a stage whose
            # tag `key` a user has removed is left alone. A user may have edited the tag `kind`.
            key = run.tags.get("key", None if "stage" in run.tags else SUMMARY)
            if key in self.runs:  # a creation timed out and was repeated, but both arrived
                self._client.delete_run(run.run_id)
            elif key is not None:
                self.runs[key] = run
        try:
            self.models = self._load_models()
        except Exception as error:
            if getattr(error, "error_code", None) not in WITHOUT_MODELS:
                raise
            self.models = None

    def _load_models(self) -> dict[str, str]:
        """The models of the runs. One whose making was cut off is deleted and made again."""
        from mlflow.entities import LoggedModelStatus

        ours = {run.run_id for run in self.runs.values()}
        models: dict[str, str] = {}
        search = functools.partial(self._client.search_logged_models, [self.experiment_id])
        for model in _all_pages(search):
            run_id = model.source_run_id
            if run_id in ours and (model.status != LoggedModelStatus.READY or run_id in models):
                self._client.delete_logged_model(model.model_id)
            elif run_id in ours:
                models[run_id] = str(model.model_id)
        return models


def _all_pages(search: Callable[..., Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return


@contextlib.contextmanager
def _refusals_ignored() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not concerns_one_run(error):
            raise
