"""An MLflow server or database, and the experiments in it.

The import of mlflow takes 2 s, so it waits for the first call.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from fope_lab.tracking import database
from fope_lab.tracking.client import Patience, PatientClient, quiet_mlflow
from fope_lab.tracking.errors import UnreachableError
from fope_lab.tracking.experiment import Experiment
from fope_lab.tracking.uris import is_server, shown, sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient

MARK = "fope_lab.sent"
"""The tag of an experiment that has all that the store has: which state of the store that was."""
# The file of every SQLite database in use. MLflow keeps connections open until the process ends, so
# after `rm mlflow.db` it would continue to write to the deleted file.
_OPEN_DATABASES: dict[Path, database.Identity] = {}


class Server:
    """The MLflow at `uri`: a server, or a database that this process writes itself.

    `root` is the folder of the store. `file` is the SQLite
    database at `uri`, or None.
    """

    def __init__(self, root: Path, uri: str) -> None:
        self.uri, self.file = uri, sqlite_file(uri)
        self.patience = Patience()
        self._root = root
        self._experiments: dict[str, Experiment] = {}

    def experiment(self, name: str, description: str, store_id: str) -> Experiment:
        """The experiment `name` with the runs of a store; it is created if it does not exist.

        Later calls return the same object as long as the server has the same experiment.
        """
        self._open()
        entity = self._client.get_experiment_by_name(name)
        if entity is None:
            folder = artifact_folder(self._root) / quote(name, safe="")
            experiment_id = self._client.create_experiment(
                name,
                artifact_location=None if is_server(self.uri) else folder.as_uri(),
                tags={"mlflow.note.content": description},
            )
            entity = self._client.get_experiment(experiment_id)
        elif entity.lifecycle_stage == "deleted":  # a user deleted it in MLflow
            self._client.restore_experiment(entity.experiment_id)
            self.forget(name)
        found = Experiment(self._client, entity, store_id, self.patience)
        known = self._experiments.get(name)
        if known is None or known.identity != found.identity:
            found.load()
            known = self._experiments[name] = found
        return known

    def mark(self, name: str) -> str | None:
        """The tag MARK of the experiment `name`, or None if it or the experiment is gone."""
        self._open()
        entity = self._client.get_experiment_by_name(name)
        there = entity is not None and entity.lifecycle_stage != "deleted"
        found: str | None = entity.tags.get(MARK) if there else None
        return found

    def forget(self, name: str) -> None:
        """Load this experiment again at the next call, because its content is no longer known."""
        self._experiments.pop(name, None)

    def store_of(self, run_id: str) -> str | None:
        """The id of the store that a run belongs to, or None if no such run exists."""
        self._open()
        try:
            store: str | None = self._client.get_run(run_id).data.tags.get("store")
        except Exception as error:
            if getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return store

    def silence(self) -> str:
        """What to say of an MLflow that does not answer."""
        if self.file is not None and database.is_write_locked(self.file):
            return f"the MLflow database {self.file} is locked by another process"
        return f"MLflow at {shown(self.uri)} did not answer in time"

    @cached_property
    def _client(self) -> MlflowClient:
        quiet_mlflow()
        from mlflow import MlflowClient

        client = cast(
            "MlflowClient", PatientClient(MlflowClient(tracking_uri=self.uri), self.patience)
        )
        if not is_server(self.uri):
            self._connect(client)
        return client

    def _connect(self, client: MlflowClient) -> None:
        """Connect to a database, whose every answer is a sign of life."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
        from sqlalchemy import event

        with self.patience.asking():
            engine = SqlAlchemyStore._get_or_create_engine(self.uri)
        event.listen(engine, "after_cursor_execute", lambda *_: self.patience.sign())
        if self.file is None:  # the first client makes the tables, and only one may do so
            name = hashlib.sha256(shown(self.uri).encode()).hexdigest()[:16]
            text = "another process has been connecting to the MLflow database for too long"
            lock = self._root / "tracking" / f"{name}.database.lock"
            with database.locked(lock, UnreachableError(text)):
                client.search_experiments(max_results=1)

    def _open(self) -> None:
        """Make sure that a SQLite database is whole, and is the one that MLflow has open."""
        file = self.file
        if file is None:
            return
        before = database.identity(file)
        if before is not None and before == _OPEN_DATABASES.get(file) and self._experiments:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        database.prepare(file)
        now = database.identity(file)
        if now is not None and _OPEN_DATABASES.setdefault(file, now) != now:
            self._reopen(file, now)

    def _reopen(self, file: Path, now: database.Identity) -> None:
        """Close MLflow's connections to the file that had the name before."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        if engine := SqlAlchemyStore._engine_map.get(self.uri):
            engine.dispose()
        self._experiments.clear()
        _OPEN_DATABASES[file] = now


def artifact_folder(store_root: Path) -> Path:
    """The folder for the artifacts of the store's SQLite database."""
    return store_root.expanduser().absolute() / "mlartifacts"
