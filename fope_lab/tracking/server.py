"""An MLflow server or database: experiments, their runs, and what each run has already.

The only module that imports mlflow (1.8 s), and only when a server is about to be asked.
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
from fope_lab.tracking.view import Life, Point

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

SERVERS = ("http", "https", "databricks")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
ENTRIES_PER_BATCH = 1_000  # MLflow's limits
PARAMS_PER_BATCH = TAGS_PER_BATCH = 100
SUMMARY = "summary"
# A run must not wait for a server that is down, and the terminal is ours. The user's values win.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
CHATTY = ("alembic", "mlflow.store.db.utils", "mlflow.store.tracking.sqlalchemy_store")
# The files of the SQLite databases in use. MLflow keeps its connections for as long as the process
# lives, so that after `rm mlflow.db` it would go on writing to a file that nobody can open.
_OPEN_DATABASES: dict[Path, tuple[int, int]] = {}


class Run:
    """A run, and what the server has of it, kept in step with what was sent since it was asked.

    `sent` is what the caller knows to have arrived: the first rows of a stage, and their digest.
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
        """Send points, the tags that differ and the parameters that the run does not have yet."""
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
        """Remove a tag, if it is there."""
        if name in self.tags:
            self._client.delete_tag(self.run_id, name)
            del self.tags[name]

    def points(self) -> set[tuple[str, int, int]]:
        """(name, step, timestamp) of every point that the server has."""
        return {
            (name, metric.step, metric.timestamp)
            for name in self._metrics
            for metric in self._client.get_metric_history(self.run_id, name)
        }

    def add_file(self, path: Path) -> None:
        """Add or replace an artifact, named as the file is."""
        self._client.log_artifact(self.run_id, str(path))

    def set_status(self, status: str, ended: int | None) -> None:
        """Set the status, and the end (ms) if it is known."""
        if ended is not None and (self._status, self._ended) != (status, ended):
            self._client.set_terminated(self.run_id, status, ended)
            self._ended = ended
        elif self._status != status:
            self._client.update_run(self.run_id, status=status)
        self._status = status


class Experiment:
    """An experiment and its runs: by stage key those of stages, under SUMMARY the report's.

    `settled` is how far a stage had come when its run was last brought up to date.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, created: int) -> None:
        self._client = client
        self.experiment_id, self.created = experiment_id, created
        self.runs: dict[str, Run] = {}
        self.settled: dict[str, Life] = {}

    def create(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Make a run that started at `started` (ms)."""
        made = self._client.create_run(self.experiment_id, start_time=started, tags=dict(tags))
        run = self.runs[key] = Run(self._client, made)
        return run

    def replace(self, key: str, tags: Mapping[str, str], started: int) -> Run:
        """Delete a run (in MLflow it can be restored) and make an empty one in its place."""
        self._client.delete_run(self.runs[key].run_id)
        return self.create(key, tags, started)

    def load(self, store_id: str) -> None:
        """Ask for the runs of one store, a single one for each key."""
        token = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id],
                filter_string=f"tags.store = '{store_id}'",
                max_results=1_000,
                page_token=token,
            )
            for found in page:
                run = Run(self._client, found)
                key = SUMMARY if run.tags.get("kind") == SUMMARY else run.tags["key"]
                if key in self.runs:  # its creation timed out here, was repeated, and yet arrived
                    self._client.delete_run(run.run_id)
                else:
                    self.runs[key] = run
            token = page.token
            if not token:
                return


class Server:
    """The MLflow at `uri`: a server, or a database that this process writes itself.

    `artifacts` is where the files of experiments in such a database go.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        self.uri = uri
        self._artifacts = artifacts
        self._experiments: dict[str, Experiment] = {}

    def experiment(self, name: str, description: str, store_id: str) -> Experiment:
        """The experiment `name`, made if need be, with the runs of one store.

        The same object as before as long as the experiment is still the same one.
        """
        self._check_database()
        found = self._client.get_experiment_by_name(name)
        if found is None:
            made = self._client.create_experiment(
                name,
                artifact_location=self._artifact_location(name),
                tags={"mlflow.note.content": description},
            )
            found = self._client.get_experiment(made)
        elif found.lifecycle_stage == "deleted":  # by somebody in MLflow, and asked for again
            self._client.restore_experiment(found.experiment_id)
            self.forget(name)
        identity = (found.experiment_id, found.creation_time)
        known = self._experiments.get(name)
        if known is None or (known.experiment_id, known.created) != identity:
            known = Experiment(self._client, *identity)
            known.load(store_id)
            self._experiments[name] = known
        return known

    def forget(self, name: str) -> None:
        """Ask afresh the next time: what the server has of this experiment is not known."""
        self._experiments.pop(name, None)

    @cached_property
    def _client(self) -> MlflowClient:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=self.uri)

    def _artifact_location(self, experiment: str) -> str | None:
        """None where the server decides."""
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
    """The SQLite database in the store, by absolute path."""
    return f"sqlite:///{store_root.expanduser().absolute() / 'mlflow.db'}"


def artifact_folder(store_root: Path) -> Path:
    """Where the artifacts of that database lie."""
    return store_root.expanduser().absolute() / "mlartifacts"


def checked_uri(uri: str) -> str:
    """`uri`, a SQLite path made absolute. Raises TrackingError if MLflow can't be reached by it."""
    allowed = (*SERVERS, *DATABASES)
    scheme = uri if uri in SERVERS else urlsplit(uri).scheme.split("+")[0]
    if scheme not in allowed:
        raise TrackingError(
            f"the tracking URI {shown(uri)!r} names no MLflow: it must begin with one of "
            f"{', '.join(allowed)}, such as http://HOST:5000 or sqlite:////FOLDER/mlflow.db"
        )
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).expanduser().absolute()}"
    return uri.rstrip("/")
