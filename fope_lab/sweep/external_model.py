"""A parent that no stage makes: a checkpoint folder, or a model of the Hugging Face hub."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import read_json, sha256_file
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import VOCABULARIES, no_tokenizer, tokenizer_identity
from fope_lab.embeddings import preset_of
from fope_lab.model.checkpoint import (
    CheckpointConfig,
    CheckpointError,
    find_checkpoint,
    identifying_files,
    read_config,
)
from fope_lab.model.huggingface.names import hub_name
from fope_lab.stages.labels import label
from fope_lab.stages.parts import parts_of_embedding, versions_of
from fope_lab.sweep.keys import digest
from fope_lab.sweep.model_spec import ModelSpec


@dataclass(frozen=True)
class ExternalModel:
    """A model that no stage of a sweep makes.

    `path` is its folder or its name on the hub, and `key` a hash of its content, or of its name and
    commit.
    """

    path: Path
    key: str
    model_spec: ModelSpec


def read_checkpoint(reference: str, base: Path) -> ExternalModel:
    """Return the model in the folder `reference`, relative to `base` or to the current folder.

    Raises fope_lab.model.checkpoint.CheckpointError if there is no such folder or no model in it.
    """
    given = os.path.expanduser(reference)
    tried = [os.path.abspath(place / given) for place in (base, Path.cwd())]
    path = next((path for path in tried if os.path.isdir(path)), None)
    if path is None:
        raise CheckpointError(f"no folder {' nor '.join(dict.fromkeys(tried))}")
    folder = find_checkpoint(os.path.realpath(path))
    config = read_config(folder)
    own = config.tokenizer == str(folder)  # a Hugging Face folder, which has its own tokenizer
    if own and not any((folder / name).is_file() for name in VOCABULARIES):
        raise CheckpointError(no_tokenizer(folder))
    identity: dict[str, Any] = {
        "checkpoint": {name: _sha256(folder, name) for name in identifying_files(folder)}
    }
    if config.tokenizer.startswith(str(folder)):  # a file of the folder
        try:
            identity["tokenizer"] = tokenizer_identity(config.tokenizer)
        except DataError as error:
            raise CheckpointError(str(error)) from None
    return ExternalModel(folder, _key(identity, config), _model_spec(config))


def read_hub_model(reference: str) -> ExternalModel:
    """Return the model `hf:NAME@COMMIT` of the hub; only its config.json is downloaded.

    Raises fope_lab.model.checkpoint.CheckpointError if it is not pinned to a commit, or if its
    configuration can't be read.
    """
    name = hub_name(reference)
    assert name is not None  # the caller checks the prefix
    if not name.pinned:
        found = "no revision" if name.revision is None else f"the revision {name.revision!r}"
        raise CheckpointError(
            f"{reference} has {found}, so it is not pinned: branches and tags can move. Give a "
            f"commit, hf:{name.repository}@COMMIT, from "
            f"https://huggingface.co/{name.repository}/commits/main"
        )
    config = read_config(str(name))
    identity = {"hub": name.repository, "revision": name.revision}
    return ExternalModel(Path(str(name)), _key(identity, config), _model_spec(config))


def _key(identity: dict[str, Any], config: CheckpointConfig) -> str:
    """The hash of what a model is, and of the versions of the code that computes its embedding."""
    versions = versions_of(parts_of_embedding(config.embedding))
    return digest({**identity, "versions": versions} if versions else identity)


def _model_spec(config: CheckpointConfig) -> ModelSpec:
    return ModelSpec(
        tokenizer=config.tokenizer,
        model=config.model,
        scale=None,
        embedding=config.embedding,
        embedding_label=label(preset_of(config.embedding)),
        train_length=config.train_length,
        last_trained_length=config.context_length,
    )


def _sha256(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file.

    The manifest's is taken if the file has the size that the manifest gives; this spares reading
    gigabytes.
    """
    try:
        manifest: Any = read_json(folder / "manifest.json")
        entry = manifest["files"][name]
        if entry["size"] == (folder / name).stat().st_size:
            return str(entry["sha256"])
    except (TypeError, KeyError, OSError):
        pass  # no manifest, or one of another format
    try:
        return sha256_file(folder / name)
    except OSError as error:
        raise CheckpointError(f"{folder / name} can't be read: {error.strerror}") from None
