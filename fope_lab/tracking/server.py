"""An MLflow server or database: its experiments, their runs, and what each run already has.

This is the only module that imports mlflow. The import takes 1.8 s, so it waits for the first call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from fope_lab.tracking.errors import TrackingError, shown
from fope_lab.tracking.points import Point
from fope_lab.tracking.view import StageTimeline

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

SERVERS = ("http", "https", "databricks")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
ENTRIES_PER_BATCH = 1_000
"""MLflow's limit for the metrics, parameters and tags of a request."""
PARAMS_PER_BATCH = TAGS_PER_BATCH = 100
"""MLflow's limits for the parameters and for the tags of a request."""
SUMMARY = "summary"
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Defaults that keep a run from waiting for a dead server, and MLflow from writing to the terminal.
Values that the user has set take precedence."""
NOISY_LOGGERS = ("alembic", "mlflow.store.db.utils", "mlflow.store.tracking.sqlalchemy_store")
# The device and inode of every SQLite database in use. MLflow keeps connections open until the
# process ends, so after `rm mlflow.db` it would continue to write to the deleted file.
_OPEN_DATABASES: dict[Path, tuple[int, int]] = {}


class Run:
    """A run, and what the server has of it: as it was loaded, updated by everything sent since.

    `sent` is the number of a stage's rows that are known to have arrived, with their digest.
    """

    def __init__(self, client: MlflowClient, run: MlflowRun) -> None:
        self._client = client
        self.run_id: str = run.info.run_id
        self.tags: dict[str, str] = dict(run.data.tags)
        self.sent: tuple[int, str] | None = None
        self._params: set[str] = set(run.data.params)
        self._metrics: set[str] = set(run.data.metrics)
        self._status: str = run.info.status
        self._ended: int | None = run.info.end_time

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

    def add_file(self, path: Path) -> None:
        """Add or replace the artifact that has the file's name."""
        self._client.log_artifact(self.run_id, str(path))

    def set_status(self, status: str, ended: int | None) -> None:
        """Set the status, and the end (ms since 1970) if it is known."""
        if ended is not None and (self._status, self._ended) != (status, ended):
            self._client.set_terminated(self.run_id, status, ended)
            self._ended = ended
        elif self._status != status:
            self._client.update_run(self.run_id, status=status)
        self._status = status


class Experiment:
    """An experiment and its runs: those of stages by key, and the report's run under SUMMARY.

    `settled` holds, by key, the progress of a stage when its run was last brought up to date.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, created: int) -> None:
        self._client = client
        self.experiment_id, self.created = experiment_id, created
        self.runs: dict[str, Run] = {}
        self.settled: dict[str, StageTimeline] = {}

    def create(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Create a run that started at `started` (ms since 1970)."""
        made = self._client.create_run(self.experiment_id, start_time=started, tags=dict(tags))
        run = self.runs[key] = Run(self._client, made)
        return run

    def replace(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Delete a run, which MLflow can restore, and create an empty run in its place."""
        self._client.delete_run(self.runs[key].run_id)
        return self.create(key, tags, started)

    def load(self, store_id: str) -> None:
        """Load the runs of a store from the server, one for each key."""
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id],
                filter_string=f"tags.store = '{store_id}'",
                max_results=1_000,
                page_token=token,
            )
            for entity in page:
                run = Run(self._client, entity)
                key = SUMMARY if run.tags.get("kind") == SUMMARY else run.tags["key"]
                if key in self.runs:  # a creation timed out and was repeated, but both arrived
                    self._client.delete_run(run.run_id)
                else:
                    self.runs[key] = run
            token = page.token
            if not token:
                return


class Server:
    """The MLflow at `uri`: a server, or a database that this process writes itself.

    `artifacts` is the folder for the files of experiments in such a database.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        self.uri = uri
        self._artifacts = artifacts
        self._experiments: dict[str, Experiment] = {}

    def experiment(self, name: str, description: str, store_id: str) -> Experiment:
        """The experiment `name` with the runs of a store; it is created if it does not exist.

        Later calls return the same object as long as the server has the same experiment.
        """
        self._check_database()
        entity = self._client.get_experiment_by_name(name)
        if entity is None:
            experiment_id = self._client.create_experiment(
                name,
                artifact_location=self._artifact_location(name),
                tags={"mlflow.note.content": description},
            )
            entity = self._client.get_experiment(experiment_id)
        elif entity.lifecycle_stage == "deleted":  # a user deleted it in MLflow
            self._client.restore_experiment(entity.experiment_id)
            self.forget(name)
        identity = (entity.experiment_id, entity.creation_time)
        known = self._experiments.get(name)
        if known is None or (known.experiment_id, known.created) != identity:
            known = Experiment(self._client, *identity)
            known.load(store_id)
            self._experiments[name] = known
        return known

    def forget(self, name: str) -> None:
        """Load this experiment again at the next call, because its content is no longer known."""
        self._experiments.pop(name, None)

    @cached_property
    def _client(self) -> MlflowClient:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        for name in NOISY_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri)

    def _artifact_location(self, experiment: str) -> str | None:
        """The folder of an experiment's files, or None if the server chooses it."""
        if urlsplit(self.uri).scheme in SERVERS or self.uri in SERVERS:
            return None
        return (self._artifacts / quote(experiment, safe="")).as_uri()

    def _check_database(self) -> None:
        if not self.uri.startswith("sqlite:///"):
            return
        path = Path(self.uri.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        file = path.stat()
        identity = (file.st_dev, file.st_ino)
        if _OPEN_DATABASES.setdefault(path, identity) != identity:
            raise TrackingError(f"{path} was removed or replaced while it was in use")


def default_uri(store_root: Path) -> str:
    """The URI of the SQLite database in the store, with an absolute path."""
    return f"sqlite:///{store_root.expanduser().absolute() / 'mlflow.db'}"


def artifact_folder(store_root: Path) -> Path:
    """The folder for the artifacts of the store's SQLite database."""
    return store_root.expanduser().absolute() / "mlartifacts"


def checked_uri(uri: str) -> str:
    """`uri`, with an absolute path if it is SQLite. Raises TrackingError if it is not MLflow's."""
    allowed = (*SERVERS, *DATABASES)
    scheme = uri if uri in SERVERS else urlsplit(uri).scheme.split("+")[0]
    if scheme not in allowed:
        raise TrackingError(
            f"the tracking URI {shown(uri)!r} is not an MLflow URI: it must start with one of "
            f"{', '.join(allowed)}, such as http://HOST:5000 or sqlite:////FOLDER/mlflow.db"
        )
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).expanduser().absolute()}"
    return uri.rstrip("/")
