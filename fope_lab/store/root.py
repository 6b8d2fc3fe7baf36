"""The folder that holds all stages."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fope_lab.atomic_files import create_exclusive
from fope_lab.store.folder import StageFolder
from fope_lab.store.problems import StoreError
from fope_lab.store.records import read_done

CHOOSE_ANOTHER = "Choose another folder with --store or FOPE_LAB_STORE."
TRACES = ("*/*/attempts", "tracking/*", "reports/*", "mlflow.db")
"""What a folder has in which something has run."""


@dataclass(frozen=True)
class Store:
    """The folder `root`, an absolute path, under which all stages live.

    `open` gives a store to read, which may be missing, `existing` one that is there, and `create`
    one to write.
    """

    root: Path

    @classmethod
    def open(cls, root: str | os.PathLike[str]) -> Self:
        """The store in the folder `root`. This writes nothing; a missing folder holds no stages.

        Raises StoreError if `root` is not a folder.
        """
        path = Path(root).expanduser().absolute()
        if path.exists() and not path.is_dir():
            raise StoreError(f"the store {path} is not a folder. {CHOOSE_ANOTHER}")
        return cls(path)

    @classmethod
    def existing(cls, root: str | os.PathLike[str]) -> Self:
        """The store in the folder `root`. This writes nothing.

        Raises StoreError if `root` is not a folder, or if nothing has run there.
        """
        store = cls.open(root)
        if not any(found for trace in TRACES for found in store.root.glob(trace)):
            raise StoreError(f"there is no store at {store.root}: nothing has run there")
        return store

    @classmethod
    def create(cls, root: str | os.PathLike[str]) -> Self:
        """The store in the folder `root`, which is made if it is missing.

        Raises StoreError if the folder can't be written, or if its file system can't create files
        exclusively.
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
        return StageFolder(self.root / kind / key)

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
        """What every finished stage ran on, as DONE records it, with its wall time as `seconds`.

        Stages without such a record are left out. This reads one small file per stage.
        """
        for path in sorted(self.root.glob("*/*/DONE")):
            done = read_done(path)
            if done is not None and isinstance(done.get("ran"), dict):
                yield {**done["ran"], "seconds": float(done["seconds"])}
