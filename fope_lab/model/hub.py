"""Models on the Hugging Face hub: their names, files and pinned configurations. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.model.checkpoint_files import CheckpointError

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


SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings", "tie_word_embeddings"),
)


def _config(*sizes: int, kind: str = "llama", **others: Any) -> Mapping[str, Any]:
    return {
        "model_type": kind,
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-5,
        **dict(zip(SIZES, sizes, strict=True)),
        **others,
    }


_LLAMA_2_7B = _config(4096, 11_008, 32, 32, 32, 32_000, 4096, False)
PINNED_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "HuggingFaceTB/SmolLM-1.7B@d7449ff7241c863f3e8accc475155f0f97afa011": _config(
        2048, 8192, 24, 32, 32, 49_152, 2048, True
    ),
    "meta-llama/Llama-2-7b-hf@01c7f73d771dfac7d292323805ebc428287df4f9": _LLAMA_2_7B,
    "meta-llama/Llama-2-7b-chat-hf@f5db02db724555f92da89c216ac04704f23d4590": _LLAMA_2_7B,
    "meta-llama/Llama-2-13b-chat-hf@a2cb7a712bb6e5e736ca7f8cd98167f81a0b5bd8": _config(
        5120, 13_824, 40, 40, 40, 32_000, 4096, False
    ),
    "google/gemma-7b@ff6768d9368919a1f025a54f9f5aa0ee591730bb": _config(
        *(3072, 24_576, 28, 16, 16, 256_000, 8192, True),
        kind="gemma",
        head_dim=256,
        rms_norm_eps=1e-6,
    ),
}
"""The fields of config.json that define the model, by NAME@COMMIT."""
