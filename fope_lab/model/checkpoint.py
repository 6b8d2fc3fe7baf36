"""A model in a directory: `config.json` and `model.safetensors`.

Reading the configuration needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.embeddings.spec import TRANSFORMS, Spec, resolve_embedding
from fope_lab.model.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
POSITIONS = "position_embeddings."
"""What the names of a position embedding's tensors begin with."""


class CheckpointError(ValueError):
    """A checkpoint that is not there, or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """All that a checkpoint says beside its weights.

    `embedding` is canonical; `train_length` is the original length in tokens, `context_length`
    the length that the model was last trained at.
    """

    model: ModelConfig
    embedding: dict[str, Any]
    train_length: int
    context_length: int
    tokenizer: str


def save_model(
    path: str | os.PathLike[str],
    model: Decoder,
    *,
    embedding: Spec,
    train_length: int,
    context_length: int,
    tokenizer: str,
) -> None:
    """Write `model` to the directory `path`, made if need be.

    Raises ValueError where `embedding` or `train_length` are not the model's.
    """
    from safetensors.torch import save_file

    config = CheckpointConfig(
        model=model.config,
        embedding=resolve_embedding(embedding),
        train_length=train_length,
        context_length=context_length,
        tokenizer=tokenizer,
    )
    if (config.embedding, train_length) != (model.embedding, model.train_length):
        raise ValueError(
            f"the model has embedding {model.embedding} and training length {model.train_length},"
            f" not {config.embedding} and {train_length}"
        )
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(model.untied_state(), directory / WEIGHTS)
    description = {"format": FORMAT, **dataclasses.asdict(config)}
    (directory / CONFIG).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def load_model(
    path: str | os.PathLike[str], embedding: Spec | None = None, *, seed: int = 0
) -> Decoder:
    """The model of a checkpoint, on the CPU and in eval mode.

    `path` is a checkpoint directory, or a stage's folder, whose final or newest checkpoint is
    taken. `embedding` swaps the position embedding. A new one of the same mechanism and options
    that changes only the frequencies (`base`, `transforms`) keeps the tensors of the checkpoint
    where their shapes agree; otherwise what it draws or learns starts afresh from `seed`.
    Raises CheckpointError, or EmbeddingError where the new embedding does not fit the model.
    """
    import torch

    from fope_lab.model.decoder import Decoder

    directory = find_checkpoint(path)
    config = read_config(directory)
    weights = _read_weights(directory / WEIGHTS)
    with torch.device("meta"):
        model = Decoder(
            config.model,
            config.embedding if embedding is None else embedding,
            train_length=config.train_length,
            seed=seed,
        )
    if model.embedding != config.embedding:
        weights = _with_embedding_of(model, weights, config.embedding)
    try:
        model.load_untied_state(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{directory / WEIGHTS} does not fit its {CONFIG}: {error}") from None
    return model.eval()


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint directory that `path` is, or that a stage's folder ends with.

    In a stage's folder it is the checkpoint that DONE names, else the newest complete one.
    """
    if str(path).startswith("hf:"):
        raise CheckpointError(f"{path}: hf: models are not read yet; give a checkpoint folder")
    directory = Path(path)
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a folder")
    if not (directory / "checkpoint").is_dir():
        return directory
    if (directory / "DONE").is_file():
        name = _read_json(directory / "DONE").get("checkpoint")
        if not name:
            raise CheckpointError(f"{directory} is a finished stage without a checkpoint")
        return directory / "checkpoint" / name
    complete = sorted(manifest.parent for manifest in directory.glob("checkpoint/*/manifest.json"))
    if not complete:
        raise CheckpointError(f"{directory} has no complete checkpoint yet")
    return complete[-1]


def read_config(directory: Path) -> CheckpointConfig:
    """What a checkpoint directory says about its model. Raises CheckpointError."""
    if not (directory / CONFIG).is_file():
        raise CheckpointError(f"{directory} is not a checkpoint: it has no {CONFIG}")
    description = _read_json(directory / CONFIG)
    if description.pop("format", None) != FORMAT:
        raise CheckpointError(f"{directory / CONFIG} is not of checkpoint format {FORMAT}")
    try:
        model = ModelConfig(**description.pop("model"))
        config = CheckpointConfig(model=model, **description)
        return dataclasses.replace(config, embedding=resolve_embedding(config.embedding))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{directory / CONFIG} is damaged: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: it holds no mapping")
    return content


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        # Copies, since what is read is mapped from a file that the store may remove.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


def _with_embedding_of(
    model: Decoder, weights: Mapping[str, Tensor], saved: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights with the model's own position embedding in place of the checkpoint's."""
    wanted = {name: t for name, t in model.state_dict().items() if name.startswith(POSITIONS)}
    same = _without_frequencies(saved) == _without_frequencies(model.embedding)
    if same and all(
        name in weights and weights[name].shape == tensor.shape for name, tensor in wanted.items()
    ):
        wanted = {name: weights[name] for name in wanted}
    rest = {name: t for name, t in weights.items() if not name.startswith(POSITIONS)}
    return rest | wanted


def _without_frequencies(embedding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        option: value for option, value in embedding.items() if option not in ("base", TRANSFORMS)
    }
