"""MLflow's SQLite database: made whole or not at all, and kept apart if it can't be read.

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
from collections.abc import Callable, Iterator
from contextlib import closing
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from fope_lab.atomic_files import sync_directory, sync_file
from fope_lab.tracking.client import is_damage, is_locked, quiet_mlflow, sqlite_codes
from fope_lab.tracking.errors import DamagedDatabaseError, TrackingError, UnreachableError
from fope_lab.tracking.uris import sqlite_uri

LOCK_SECONDS = 8.0
"""How long to wait for another process that holds a lock file."""
BUSY_SECONDS = 5.0
"""How long to wait for a process that has locked the whole database."""
SIDE_FILES = ("-journal", "-wal", "-shm")
"""SQLite's sidecar files; a stale one corrupts a new database of the same name."""
NOT_DAMAGE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
)
"""SQLite's codes for what is wrong around a database, such as a full disk."""
Identity = tuple[int, int]


class State(Enum):
    """What a file is to MLflow, if it can be read."""

    EMPTY = auto()  # or missing
    FOREIGN = auto()  # it has tables, but none of MLflow's
    UNFINISHED = auto()  # MLflow's tables, but those of an older version, or half of them
    WHOLE = auto()


@contextlib.contextmanager
def locked(
    path: Path, busy: TrackingError, progress: Callable[[], object] = lambda: None
) -> Iterator[BinaryIO]:
    """Hold the lock on the file `path`, and yield the file.

    Raises the error `busy` if another holds the lock for LOCK_SECONDS, counted
    again from each change of what `progress` returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        seen, deadline = progress(), time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if (now := progress()) != seen:
                    seen, deadline = now, time.monotonic() + LOCK_SECONDS
                if time.monotonic() > deadline:
                    raise busy from None
                time.sleep(0.05)
        yield file


def identity(path: Path) -> Identity | None:
    """What tells a file from another that later has its name; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def prepare(path: Path, *, ours: bool) -> None:
    """Make the database if it is missing, or bring it to this version of MLflow if it is `ours`.

    Raises DamagedDatabaseError if the file can't be used, and UnreachableError or TrackingError if
    it can't be used now. A file that is not ours is never changed, unless it is empty.
    """
    quiet_mlflow()
    path = path.resolve()
    if state(path) is State.WHOLE:
        return
    with _one_maker(path):
        found = state(path)
        if found is State.EMPTY:
            _make(path)
        elif found is State.UNFINISHED and ours:
            _finish(path)
        elif found is State.FOREIGN and ours:
            raise DamagedDatabaseError(f"{path} holds another program's tables")
        elif found is State.FOREIGN:
            _migrate(path, durable=True)
        elif found is State.UNFINISHED:
            raise DamagedDatabaseError(
                f"the MLflow database {path} was made by an older MLflow, or is incomplete."
                " Copy it, then run `mlflow db upgrade` on it, or name another database"
            )


def set_aside(path: Path, damaged: Identity | None) -> Path | None:
    """Rename the file that was found damaged; returns its new path.

    Returns None if another process has replaced the file since.
    """
    path = path.resolve()
    with _one_maker(path):
        if damaged is None or identity(path) != damaged:
            return None
        moved = path.with_name(f"{path.name}.unreadable-{time.strftime('%Y%m%d-%H%M%S')}")
        while moved.exists():
            moved = moved.with_name(f"{moved.name}-again")
        for end in SIDE_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{end}", f"{moved}{end}")
        os.replace(path, moved)
        sync_directory(path.parent)
        return moved


def readable_tables(path: Path) -> tuple[set[str], str | None]:
    """The names of the tables in a SQLite file, and MLflow's revision of them, if there is one.

    Raises DamagedDatabaseError if it is no SQLite database or can't be read. Imports no mlflow.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {str(name) for (name,) in found}
            rows = []
            if "alembic_version" in tables:
                rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            return tables, str(rows[0][0]) if rows else None
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise DamagedDatabaseError(f"the MLflow database {path}: {error}") from error
        if is_locked(error):
            text = f"the MLflow database {path} is locked by another process"
            raise UnreachableError(text) from error
        raise UnreachableError(f"the MLflow database {path}: {error}") from error


def is_write_locked(path: Path) -> bool:
    """Whether another process has locked the database, so that nobody can write to it."""
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return is_locked(error)
    return False


def state(path: Path) -> State:
    """What the file is to this version of MLflow, which must have been imported.

    Raises DamagedDatabaseError if it can't be read, and TrackingError if it is locked or of a newer
    version.
    """
    if not path.exists() or path.stat().st_size == 0:
        return State.EMPTY
    tables, revision = readable_tables(path)
    from mlflow.store.db.base_sql_model import Base

    if not tables:
        return State.EMPTY
    newest, *older = _revisions()
    if revision == newest and tables >= set(Base.metadata.tables):
        return State.WHOLE
    if revision is not None and revision not in (newest, *older):
        raise UnreachableError(
            f"the MLflow database {path} was made by another version of MLflow, which this one"
            f" can't read (it has revision {revision})"
        )
    return State.UNFINISHED if revision or "experiments" in tables else State.FOREIGN


@functools.cache
def _revisions() -> tuple[str, ...]:
    """The revisions of its tables that this version of MLflow knows, the newest first."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    scripts = ScriptDirectory.from_config(utils._get_alembic_config(""))
    return tuple(script.revision for script in scripts.walk_revisions())


def _make(path: Path) -> None:
    """Make the database under another name and put it in place of the empty file, or of none."""
    with _temporary(path) as made:
        _migrate(made, durable=False)
        _install(made, path)


def _finish(path: Path) -> None:
    """Bring a copy to this version of MLflow and put it in place.

    Raises DamagedDatabaseError if MLflow can't: a migration had been killed in the middle.
    """
    with _temporary(path) as copy:
        try:
            with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(copy)) as new:
                old.backup(new)
            _migrate(copy, durable=False)
        except Exception as error:
            codes = set(sqlite_codes(error))
            if isinstance(error, OSError) or codes & set(NOT_DAMAGE):
                raise
            text = f"the tables of the MLflow database {path} are only half made"
            raise DamagedDatabaseError(text) from error
        _install(copy, path)


def _migrate(path: Path, *, durable: bool) -> None:
    """Make or complete MLflow's tables in a SQLite file, and the experiment that it always has.

    Unless it is `durable`, a power failure may cost the file, and it takes half the time.
    """
    import sqlalchemy
    from mlflow.store.db import utils
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    uri = sqlite_uri(path)
    engine = SqlAlchemyStore._get_or_create_engine(uri)
    try:
        if not durable:
            sqlalchemy.event.listen(
                engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF")
            )
            engine.dispose()
        if readable_tables(path)[1] is None:
            utils._initialize_tables(engine)
        else:
            utils._upgrade_db(engine)
        SqlAlchemyStore(uri, "mlflow-artifacts:/")
    finally:
        engine.dispose()
        del SqlAlchemyStore._engine_map[uri]


def _install(made: Path, path: Path) -> None:
    sync_file(made)
    for end in SIDE_FILES:
        Path(f"{path}{end}").unlink(missing_ok=True)
    os.replace(made, path)
    sync_directory(path.parent)


@contextlib.contextmanager
def _one_maker(path: Path) -> Iterator[None]:
    """Hold the lock beside the database. Whoever waits for it, waits while a database grows."""

    def progress() -> object:
        return sorted((file.name, _changed_at(file)) for file in _unfinished(path))

    text = f"another process has been making the MLflow database {path} for too long"
    busy = UnreachableError(text)
    with locked(path.with_name(f".{path.name}.lock"), busy, progress):
        yield


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A new name beside `path`. Whatever has it afterwards, or is left of others, is removed."""
    try:
        yield path.with_name(f"{_prefix(path)}{uuid.uuid4().hex}")
    finally:
        for file in _unfinished(path):
            file.unlink(missing_ok=True)


def _unfinished(path: Path) -> list[Path]:
    """The files of databases that are being made, or were when their process was killed."""
    return [entry for entry in path.parent.iterdir() if entry.name.startswith(_prefix(path))]


def _changed_at(path: Path) -> int:
    """When a file was last changed, in ns; 0 if it is gone: SQLite's journals come and go."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _prefix(path: Path) -> str:
    return f".{path.name}.making-"
