"""A checkpoint folder given as a parent: what it holds, and its identity."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.durable import read_json, sha256_file
from fope_lab.model.checkpoint import (
    CONFIG,
    WEIGHTS,
    CheckpointError,
    find_checkpoint,
    read_config,
)
from fope_lab.sweep.keys import digest
from fope_lab.sweep.labels import label
from fope_lab.sweep.lineage import Lineage


@dataclass(frozen=True)
class Checkpoint:
    """A model that no stage of a sweep made: its folder, what it is, and a hash of its content."""

    path: Path
    key: str
    lineage: Lineage


def read_checkpoint(reference: str, base: Path) -> Checkpoint:
    """The checkpoint folder `reference`, relative to `base` or else to the current folder.

    Raises fope_lab.model.checkpoint.CheckpointError.
    """
    given = os.path.expanduser(reference)
    tried = [os.path.abspath(place / given) for place in (base, Path.cwd())]
    path = next((path for path in tried if os.path.isdir(path)), None)
    if path is None:
        raise CheckpointError(f"no folder {' nor '.join(dict.fromkeys(tried))}")
    folder = find_checkpoint(os.path.realpath(path))
    config = read_config(folder)
    return Checkpoint(
        path=folder,
        key=digest({"checkpoint": {name: _sha256(folder, name) for name in (CONFIG, WEIGHTS)}}),
        lineage=Lineage(
            tokenizer=config.tokenizer,
            model=config.model,
            scale=None,
            embedding=config.embedding,
            label=label(config.embedding),
            train_length=config.train_length,
        ),
    )


def _sha256(folder: Path, name: str) -> str:
    """The hash of a file's content: the manifest's, which spares reading gigabytes, if the file has
    the size that the manifest says."""
    try:
        manifest: Any = read_json(folder / "manifest.json")
        entry = manifest["files"][name]
        if entry["size"] == (folder / name).stat().st_size:
            return str(entry["sha256"])
    except (TypeError, KeyError, OSError):
        pass  # no manifest, or none of ours
    try:
        return sha256_file(folder / name)
    except OSError as error:
        raise CheckpointError(f"{folder / name} can't be read: {error.strerror}") from None
