"""The formats of model folders: ours, our exports for transformers, and Hugging Face's own.

`config.json` says which format a folder has. Reading it needs no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.options import Entry, Option, PositiveInt, entry_of
from fope_lab.data.tokenizers.tokenizer import beside
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.model.checkpoint_config import CheckpointConfig, CheckpointError
from fope_lab.model.config import ModelConfig
from fope_lab.model.huggingface.config import FAMILIES, read_huggingface_config
from fope_lab.model.huggingface.weights import read_huggingface_weights
from fope_lab.model.weights import WEIGHTS, read_weights, weight_files

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
EXPORTED = "fope-lab"
"""The `model_type` of a model that was exported for transformers (`export/`)."""
DECODER = "decoder."
"""The prefix of the names of tensors in an exported folder."""
_FIELDS: Entry[dict[str, Any]] = Entry(
    title="",
    description="What config.json says of a checkpoint in our format, beside the format.",
    options={
        "model": Option(dict[str, Any], MISSING),
        "embedding": Option(dict[str, Any] | str, MISSING),
        "train_length": Option(PositiveInt, MISSING),
        "context_length": Option(PositiveInt, MISSING),
        "tokenizer": Option(str, MISSING),
    },
    make=dict,
)
_SIZES = entry_of(ModelConfig)
OWN_TOKENIZER = "."
"""The tokenizer of an exported model whose tokenizer is in the same folder."""


@dataclass(frozen=True)
class ConfigSource:
    """The origin of a config.json: its name in errors, its folder, and the tokenizer beside it."""

    config: str
    folder: Path
    tokenizer: str


@dataclass(frozen=True)
class Format:
    """The readers of a format: one for config.json and one for the weights."""

    config: Callable[[dict[str, Any], ConfigSource], CheckpointConfig]
    weights: Callable[[Path, dict[str, Any], CheckpointConfig], dict[str, Tensor]]


def format_of(description: Mapping[str, Any]) -> Format:
    """The format of a folder, by its config.json."""
    kind = description.get("model_type")
    return _FORMATS.get(kind if kind is None else str(kind), _HUGGINGFACE)


def _our_config(description: dict[str, Any], place: ConfigSource) -> CheckpointConfig:
    if "format" not in description:
        raise CheckpointError(
            f"{place.config} has neither a format (allowed: {FORMAT}, in a checkpoint of fope-lab)"
            f" nor a model_type (allowed: {', '.join([EXPORTED, *FAMILIES])})"
        )
    if description.pop("format") != FORMAT:
        raise CheckpointError(f"{place.config} is not of checkpoint format {FORMAT}")
    try:
        given = _FIELDS.read(description)
        model = _SIZES.read(given.pop("model"))
        embedding = parse_embedding(given.pop("embedding"))
        config = CheckpointConfig(model=model, embedding=embedding, **given)
        return dataclasses.replace(config, tokenizer=beside(place.folder, config.tokenizer))
    except ValueError as error:
        reason = "; ".join(str(error).splitlines())
        raise CheckpointError(f"{place.config} is damaged: {reason}") from None


def _exported_config(description: dict[str, Any], place: ConfigSource) -> CheckpointConfig:
    """Read a config.json that `export` wrote, or transformers after it."""
    fields = [field.name for field in dataclasses.fields(CheckpointConfig)]
    ours = {name: description[name] for name in fields if name in description}
    config = _our_config({"format": FORMAT, "tokenizer": OWN_TOKENIZER, **ours}, place)
    own = config.tokenizer == OWN_TOKENIZER
    return dataclasses.replace(config, tokenizer=place.tokenizer) if own else config


def _exported_weights(
    directory: Path, description: dict[str, Any], config: CheckpointConfig
) -> dict[str, Tensor]:
    parts = map(read_weights, weight_files(directory))
    return {name.removeprefix(DECODER): tensor for part in parts for name, tensor in part.items()}


_HUGGINGFACE = Format(
    lambda description, place: read_huggingface_config(description, place.config, place.tokenizer),
    read_huggingface_weights,
)
_FORMATS: Mapping[str | None, Format] = {
    None: Format(_our_config, lambda directory, *_: read_weights(directory / WEIGHTS)),
    EXPORTED: Format(_exported_config, _exported_weights),
}
"""The formats by the `model_type` of config.json, which our own format does not have. Any other
`model_type` is Hugging Face's."""
