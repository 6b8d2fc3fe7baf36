"""MLflow's SQLite database: made whole or not at all.

MLflow makes its tables in about sixty steps, which are not atomic on SQLite: a process that is
killed in between, or a second one that starts at the same time, leaves a database that MLflow can
never use. So one process at a time makes a database, under another name, and renames it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from fope_lab.config.atomic_files import sync_directory, sync_file
from fope_lab.tracking.client import is_damage, is_locked, quiet_mlflow
from fope_lab.tracking.errors import DamagedDatabaseError, TrackingError, UnreachableError
from fope_lab.tracking.uris import sqlite_uri

LOCK_SECONDS = 8.0
"""How long to wait for another process that holds a lock file."""
MAKING_SECONDS = 60.0
"""How long to wait for another process that makes the database, on a slow disk perhaps."""
BUSY_SECONDS = 5.0
"""How long to wait for a process that has locked the whole database."""
SIDE_FILES = ("-journal", "-wal", "-shm")
"""SQLite's sidecar files; a stale one corrupts a new database of the same name."""
Identity = tuple[int, int]
"""The identity of a file, even if another takes its name: its device and inode."""


@contextlib.contextmanager
def locked(path: Path, busy: TrackingError, seconds: float = LOCK_SECONDS) -> Iterator[BinaryIO]:
    """Hold the lock on a file, and yield it; raises `busy` if another holds it for `seconds`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise busy from None
                time.sleep(0.05)
        yield file


def identity(path: Path) -> Identity | None:
    """The identity of a file; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def prepare(path: Path) -> None:
    """Make the database if the file is missing or empty; another file is never changed.

    Raises DamagedDatabaseError if the file can't be used, and UnreachableError or TrackingError if
    it can't be used now.
    """
    quiet_mlflow()
    path = path.resolve()
    if not is_whole(path):
        with _one_maker(path):
            if not is_whole(path):  # another process may have made it meanwhile
                _make(path)


def readable_tables(path: Path) -> tuple[set[str], str | None]:
    """The names of the tables in a SQLite file, and MLflow's revision of them, if there is one.

    Raises DamagedDatabaseError if it is no SQLite database or can't be read. Imports no mlflow.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables, row = {str(name) for (name,) in found}, None
            if "alembic_version" in tables:
                row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return tables, str(row[0]) if row else None
    except sqlite3.DatabaseError as error:
        kind = DamagedDatabaseError if is_damage(error) else UnreachableError
        fault = " is locked by another process" if is_locked(error) else f": {error}"
        raise kind(f"the MLflow database {path}{fault}") from error


def is_write_locked(path: Path) -> bool:
    """Whether another process has locked the database, so that nobody can write to it."""
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return is_locked(error)
    return False


def is_whole(path: Path) -> bool:
    """Whether a file has all tables of this MLflow, which must have been imported; False if the
    file is empty or missing.

    Raises DamagedDatabaseError for any other file, and UnreachableError if it is locked or of a
    newer MLflow.
    """
    if not path.exists() or path.stat().st_size == 0:
        return False
    tables, revision = readable_tables(path)
    from mlflow.store.db.base_sql_model import Base

    newest, *older = _revisions()
    if revision == newest and tables >= set(Base.metadata.tables):
        return True
    if revision is not None and revision not in (newest, *older):
        raise UnreachableError(
            f"the MLflow database {path} was made by another version of MLflow, which this one"
            f" can't read (it has revision {revision})"
        )
    if revision or "experiments" in tables:
        raise DamagedDatabaseError(
            f"the MLflow database {path} was made by an older MLflow (`mlflow db upgrade` brings a"
            " copy to this one), or is incomplete"
        )
    if tables:
        raise DamagedDatabaseError(f"{path} is a database with another program's tables")
    return False


@functools.cache
def _revisions() -> tuple[str, ...]:
    """The revisions of its tables that this version of MLflow knows, the newest first."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    scripts = ScriptDirectory.from_config(utils._get_alembic_config(""))
    return tuple(script.revision for script in scripts.walk_revisions())


def _make(path: Path) -> None:
    """Make a database under another name and put it in place of the empty file, or of none."""
    import sqlalchemy
    from mlflow.store.db import utils
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    prefix = f".{path.name}.making-"
    made = path.with_name(f"{prefix}{uuid.uuid4().hex}")
    uri = sqlite_uri(made)
    try:
        engine = SqlAlchemyStore._get_or_create_engine(uri)
        try:  # without waiting for the disk at each step, which takes half the time
            pragma = "PRAGMA synchronous = OFF"
            sqlalchemy.event.listen(engine, "connect", lambda raw, _: raw.execute(pragma))
            engine.dispose()
            utils._initialize_tables(engine)
            SqlAlchemyStore(uri, "mlflow-artifacts:/")  # makes the experiment that is always there
        finally:
            engine.dispose()
            del SqlAlchemyStore._engine_map[uri]
        sync_file(made)
        for end in SIDE_FILES:
            Path(f"{path}{end}").unlink(missing_ok=True)
        os.replace(made, path)
        sync_directory(path.parent)
    finally:  # also what a process left that was killed
        for file in path.parent.iterdir():
            if file.name.startswith(prefix):
                file.unlink(missing_ok=True)


def _one_maker(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    text = f"another process has been making the MLflow database {path} for too long"
    return locked(path.with_name(f".{path.name}.lock"), UnreachableError(text), MAKING_SECONDS)
