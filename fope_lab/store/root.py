"""The folder that holds all stages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import create_exclusive, read_json
from fope_lab.store.folder import StageFolder
from fope_lab.store.problems import StoreError


class Store:
    """The folder under which all stages live. Raises StoreError if it can't be written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()
        probe = self.root / f".probe-{uuid.uuid4().hex}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            exclusive = create_exclusive(probe, "") and not create_exclusive(probe, "")
            probe.unlink()
        except OSError as error:
            raise StoreError(
                f"the store {self.root} can't be written: {error.strerror or error}. "
                "Choose another folder with --store or FOPE_LAB_STORE."
            ) from error
        if not exclusive:
            raise StoreError(
                f"the store {self.root} lies on a file system that can't create a file "
                "exclusively, so two drivers could train one stage at once. "
                "Use a local disk or NFS version 3 or later."
            )

    def folder(self, kind: str, key: str) -> StageFolder:
        """The folder of a stage, whether it exists or not."""
        return StageFolder(self.root / kind / key)

    def times(self) -> Iterator[dict[str, Any]]:
        """Of every stage that was finished and says what it ran on: that, as DONE keeps it, and
        the attempt's wall time as `seconds`. A small file a stage is read, no more."""
        for path in sorted(self.root.glob("*/*/DONE")):
            done = read_json(path)
            if done is not None and done.get("ran") is not None:
                yield {**done["ran"], "seconds": float(done["seconds"])}
