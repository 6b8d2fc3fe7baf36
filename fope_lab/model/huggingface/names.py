"""Names of models on the Hugging Face hub, `hf:NAME@REVISION`, and their files. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.model.checkpoint_config import CheckpointError

PREFIX = "hf:"
COMMIT = re.compile(r"[0-9a-f]{40}")
FILES = ("*.json", "model*.safetensors", "*.model", "*.txt", "*.jinja")
"""The files of a repository that a model needs; others may be many times as large."""


@dataclass(frozen=True)
class HubName:
    """A repository of the hub at a revision (a commit, branch or tag), by default the newest."""

    repository: str
    revision: str | None

    def __str__(self) -> str:
        return f"{PREFIX}{self.tokenizer}"

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, because branches and tags can move."""
        return self.revision is not None and COMMIT.fullmatch(self.revision) is not None

    @property
    def tokenizer(self) -> str:
        """The name of its tokenizer for `load_tokenizer`."""
        return self.repository if self.revision is None else f"{self.repository}@{self.revision}"


def hub_name(path: str | os.PathLike[str]) -> HubName | None:
    """The name on the hub that `path` is, or None for a path of the file system.

    Raises CheckpointError for a name without a repository or with an empty revision.
    """
    text = os.fspath(path)
    if not text.startswith(PREFIX):
        return None
    repository, at, revision = text.removeprefix(PREFIX).partition("@")
    if not repository or (at and not revision):
        raise CheckpointError(
            f"{text!r} is incomplete: write {PREFIX}NAME or {PREFIX}NAME@REVISION"
        )
    return HubName(repository, revision or None)


def config_file(name: HubName) -> Path:
    """Download config.json of a model. Raises CheckpointError if that fails."""
    from huggingface_hub import hf_hub_download

    return _downloaded(name, hf_hub_download, filename="config.json")


def model_folder(name: HubName) -> Path:
    """Download the files of a model to a folder. Raises CheckpointError if that fails."""
    from huggingface_hub import snapshot_download

    return _downloaded(name, snapshot_download, allow_patterns=list(FILES))


def _downloaded(name: HubName, download: Callable[..., str], **what: Any) -> Path:
    try:
        return Path(download(name.repository, revision=name.revision, **what))
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise CheckpointError(
            f"{name} cannot be downloaded from the Hugging Face hub: {reason}. Without access to"
            " the hub, give the folder of a copy."
        ) from error
