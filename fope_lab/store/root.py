"""The store: the folder that holds all stages, and what sweeps leave beside them.

source/NAME.json         the source code that attempts ran through, once for each state of it
corpora/NAME.json        what a corpus of local files held when a stage read it
reports/SWEEP/           the report of a sweep, and in sweep.json the file that it came from
.tune/DRIVER/            what a run needs while it lasts (fope_lab/orchestration/drivers.py)
tracking/                what MLflow has (fope_lab/tracking/)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fope_lab.config.atomic_files import create_exclusive, read_json, write_atomic, write_json
from fope_lab.store.attempt import completion
from fope_lab.store.attempts import AttemptsReading
from fope_lab.store.folder import StageFolder
from fope_lab.store.records import StoreError, read_corpus, read_done
from fope_lab.store.source import DIGITS as SOURCE_DIGITS
from fope_lab.store.source import SourceFile
from fope_lab.store.state import StageState

CHOOSE_ANOTHER = "Choose another folder with --store or FOPE_LAB_STORE."
TRACES = ("*/*/attempts", "tracking/*", "reports/*", "mlflow.db")
"""What a folder has in which something has run."""
CORPUS_DIGITS = 20
"""The length of a corpus's name, in hexadecimal digits."""


@dataclass(frozen=True)
class CorpusRecord:
    """A corpus of local files, and what it held at `time`, in seconds since the epoch.

    `corpus` is what the file of the sweep named `sweep` says, and relative paths in it start from
    `folder`. `files` has the SHA-256 of each file by its path, which starts from `folder` too
    unless the sweep names absolute paths. `identity` is what keys have for the corpus.
    """

    corpus: Mapping[str, Any]
    folder: str
    sweep: str
    files: Mapping[str, str]
    identity: Mapping[str, Any]
    time: float


@dataclass(frozen=True)
class Store:
    """The folder `root`, an absolute path, under which all stages live."""

    root: Path

    @classmethod
    def open(cls, root: str | os.PathLike[str]) -> Self:
        """The store to read in the folder `root`; a missing one holds no stages.

        Raises StoreError if `root` is not a folder.
        """
        path = Path(root).expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise StoreError(f"the store {path} is not a folder. {CHOOSE_ANOTHER}")
        return cls(path)

    @classmethod
    def existing(cls, root: str | os.PathLike[str]) -> Self:
        """The store to read in the folder `root`; raises StoreError if nothing has run there."""
        store = cls.open(root)
        if not any(found for trace in TRACES for found in store.root.glob(trace)):
            raise StoreError(f"there is no store at {store.root}: nothing has run there")
        return store

    @classmethod
    def create(cls, root: str | os.PathLike[str]) -> Self:
        """The store to write in the folder `root`, which is made if it is missing.

        Raises StoreError if it can't be written, or if files can't be created exclusively there.
        """
        path = Path(root).expanduser().absolute()
        probe = path / f".probe-{uuid.uuid4().hex}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            exclusive = create_exclusive(probe, "") and not create_exclusive(probe, "")
            probe.unlink()
        except OSError as error:
            raise StoreError(
                f"the store {path} can't be written: {error.strerror or error}. {CHOOSE_ANOTHER}"
            ) from error
        if not exclusive:
            raise StoreError(
                f"the store {path} is on a file system that can't create a file exclusively, so two"
                " drivers could train the same stage at once. Use a local disk, or NFS version 3 or"
                " later."
            )
        return cls(path)

    def folder(self, kind: str, key: str) -> StageFolder:
        """The folder of a stage, whether it exists or not."""
        return StageFolder(self.root.joinpath(kind, key))

    def keys(self, kind: str) -> frozenset[str]:
        """The names of the folders that the stages of a kind have."""
        try:
            return frozenset(os.listdir(self.root / kind))
        except OSError:
            return frozenset()

    def folders(self) -> list[StageFolder]:
        """The folders of all stages that anybody ever began, by kind and key."""
        return [StageFolder(path.parent) for path in sorted(self.root.glob("*/*/attempts"))]

    def execution_records(self) -> Iterator[dict[str, Any]]:
        """What every finished stage ran on, as its DONE records it, with its wall `seconds`."""
        for path in sorted(self.root.glob("*/*/DONE")):
            done = read_done(path)
            if done is not None and isinstance(done.get("ran"), dict):
                yield {**done["ran"], "seconds": float(done["seconds"])}

    def keep_source(self, files: Mapping[str, SourceFile]) -> str:
        """Write down source files by path unless they are known; returns the name of that state."""
        content = {path: dataclasses.asdict(file) for path, file in sorted(files.items())}
        text = json.dumps(content, indent=1)
        name = hashlib.sha256(text.encode()).hexdigest()[:SOURCE_DIGITS]
        path = self._source(name)
        if not path.exists():
            write_atomic(path, text)
        return name

    def source(self, name: str) -> dict[str, SourceFile] | None:
        """The source files of that state by path, or None if they are missing or damaged."""
        content = read_json(self._source(name))
        if not isinstance(content, dict):
            return None
        try:
            return {path: SourceFile(**file) for path, file in content.items()}
        except TypeError:
            return None

    def keep_corpus(self, record: CorpusRecord) -> None:
        """Write down a corpus, in place of what the same file named the same way before."""
        named = json.dumps([record.corpus, record.folder, record.sweep], sort_keys=True)
        name = hashlib.sha256(named.encode()).hexdigest()[:CORPUS_DIGITS]
        write_json(self.root / "corpora" / f"{name}.json", dataclasses.asdict(record))

    def corpora(self) -> list[CorpusRecord]:
        """Every corpus that can be read, the newest first."""
        paths = sorted((self.root / "corpora").glob("*.json"))
        names = [field.name for field in dataclasses.fields(CorpusRecord)]
        found = [
            CorpusRecord(**{name: content[name] for name in names})
            for content in filter(None, map(read_corpus, paths))
        ]
        return sorted(found, key=lambda record: record.time, reverse=True)

    def report(self, sweep: str) -> Path:
        """The folder of a sweep's report."""
        return self.root / "reports" / sweep

    def keep_sweep_file(self, sweep: str, path: Path) -> None:
        """Remember the file of a sweep."""
        write_json(self.report(sweep) / "sweep.json", {"path": str(path)})

    def sweep_file(self, sweep: str) -> Path | None:
        """The file that the sweep of this name came from when it last ran, or None."""
        content = read_json(self.report(sweep) / "sweep.json")
        path = content.get("path") if isinstance(content, dict) else None
        return Path(path) if isinstance(path, str) else None

    def driver(self, name: str) -> Path:
        """The folder for what a driver's run needs while it lasts."""
        return self.root / ".tune" / name

    def drivers(self) -> list[Path]:
        """The folders of all drivers that run, or were killed."""
        return sorted((self.root / ".tune").glob("*"))

    def contains(self, path: Path) -> bool:
        """Whether a file or folder is in the store."""
        return path.resolve().is_relative_to(self.root.resolve())

    def live(self) -> Store:
        """The store as it is at each call, also of a snapshot."""
        return self

    def _source(self, name: str) -> Path:
        return self.root / "source" / f"{name}.json"

    def __str__(self) -> str:
        return str(self.root)


class StageReading(StageFolder):
    """A stage's folder at one moment: its state, attempts and completion are each read once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, AttemptsReading(path))

    def state(self) -> StageState:
        return self._state

    @functools.cached_property
    def _state(self) -> StageState:
        return super().state()

    @functools.cached_property
    def _completion(self) -> dict[str, Any] | None:
        self.attempts.newest()  # first: an attempt that has ended well by now has left its DONE
        return completion(self.paths)

    def done(self) -> dict[str, Any] | None:
        return self._completion


@dataclass(frozen=True)
class StoreSnapshot(Store):
    """A store of which each stage is read once, when first asked for. Nothing is written to it."""

    @classmethod
    def of(cls, store: Store) -> StoreSnapshot:
        """A snapshot of a store, or the store itself if it is one already."""
        return store if isinstance(store, cls) else cls(store.root)

    def folder(self, kind: str, key: str) -> StageFolder:
        """The folder of a stage as it is now; later calls give the same reading of it."""
        place = kind, key
        if place not in self._folders:
            self._folders[place] = StageReading(self.root.joinpath(kind, key))
        return self._folders[place]

    @functools.cached_property
    def _folders(self) -> dict[tuple[str, str], StageFolder]:
        return {}

    def live(self) -> Store:
        return Store(self.root)
