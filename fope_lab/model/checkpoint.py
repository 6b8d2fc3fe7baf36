"""Models in directories: `config.json` and safetensors, in our format or in transformers'.

Reading the configuration needs no torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fope_lab.config.options import PositiveInt, entry_of
from fope_lab.config.plugins import loaded_plugins, plugin_of
from fope_lab.data.tokenizers.tokenizer import beside
from fope_lab.embeddings.base import Embedding, EmbeddingError
from fope_lab.embeddings.spec import TRANSFORMS, Spec, parse_embedding
from fope_lab.embeddings.within import Within
from fope_lab.model.adapter import Adapter
from fope_lab.model.checkpoint_files import (
    SHARDS,
    WEIGHTS,
    CheckpointConfig,
    CheckpointError,
    ConfigSource,
    read_weights,
    weight_files,
)
from fope_lab.model.config import ModelConfig
from fope_lab.model.families.base import FAMILIES, family_of, read_family_config
from fope_lab.model.families.tensors import read_tensors
from fope_lab.model.hub import PINNED_CONFIGS, config_file, hub_name, model_folder

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

CONFIG = "config.json"
FORMAT = 1
EXPORTED = "fope-lab"
"""The `model_type` of a model that was exported for transformers (`export/`)."""
DECODER = "decoder."
"""The prefix of the names of tensors in an exported folder."""
POSITIONS, SCALES = "position_embeddings.", "query_scales."
"""The prefixes of the names of the tensors of position embeddings and of query scales."""
OWN_TOKENIZER = "."
"""The tokenizer of an exported model whose tokenizer is in the same folder."""


@dataclass(frozen=True)
class _Fields:
    """The fields of our config.json, beside the format."""

    model: dict[str, Any]
    embedding: dict[str, Any] | str
    train_length: PositiveInt
    context_length: PositiveInt
    tokenizer: str
    plugins: tuple[str, ...] = ()
    adapter: Adapter | None = None


def _our_config(description: dict[str, Any], source: ConfigSource) -> CheckpointConfig:
    if "format" not in description:
        raise CheckpointError(
            f"{source.config} has neither a format (allowed: {FORMAT}, in a checkpoint of fope-lab)"
            f" nor a model_type (allowed: {', '.join([EXPORTED, *FAMILIES.all()])})"
        )
    if description.pop("format") != FORMAT:
        raise CheckpointError(f"{source.config} is not of checkpoint format {FORMAT}")
    try:
        given = entry_of(_Fields).read(description)
        return CheckpointConfig(
            model=entry_of(ModelConfig).read(given.model),
            embedding=_embedding_of(given, source),
            train_length=given.train_length,
            context_length=given.context_length,
            tokenizer=beside(source.folder, given.tokenizer),
            adapter=given.adapter,
        )
    except CheckpointError:
        raise
    except ValueError as error:
        reason = "; ".join(str(error).splitlines())
        raise CheckpointError(f"{source.config} is damaged: {reason}") from None


def _embedding_of(given: _Fields, source: ConfigSource) -> Embedding:
    try:
        return parse_embedding(given.embedding)
    except EmbeddingError as error:
        if not set(given.plugins) - {plugin.name for plugin in loaded_plugins()}:
            raise
        raise CheckpointError(
            f"{source.config}: its embedding is of the plug-in {', '.join(given.plugins)}, which is"
            " not here: name it with --plugins, in plugins of the sweep file, or by"
            f" fope_lab.load_plugins ({'; '.join(str(error).splitlines())})"
        ) from None


def _exported_config(description: dict[str, Any], source: ConfigSource) -> CheckpointConfig:
    """Read what `export` wrote, or transformers after it."""
    fields = [field.name for field in dataclasses.fields(_Fields)]
    ours = {name: description[name] for name in fields if name in description}
    config = _our_config({"format": FORMAT, "tokenizer": OWN_TOKENIZER, **ours}, source)
    own = config.tokenizer == OWN_TOKENIZER
    return dataclasses.replace(config, tokenizer=source.tokenizer) if own else config


def _our_weights(directory: Path) -> dict[str, Tensor]:
    parts = map(read_weights, weight_files(directory))
    return {name.removeprefix(DECODER): tensor for part in parts for name, tensor in part.items()}


def save_model(
    path: str | os.PathLike[str],
    model: Decoder,
    *,
    context_length: int,
    tokenizer: str,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write `model` to the directory `path`, which is created if it does not exist.

    `context_length` is the length in tokens that the model was last trained at. `weights` are its
    tensors if the model itself does not hold them whole (see `Decoder.untied_state`).
    """
    from safetensors.torch import save_file

    from fope_lab.model.lora import adapter_of

    directory, adapter = Path(path), adapter_of(model)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(dict(model.untied_state() if weights is None else weights), directory / WEIGHTS)
    description = {
        "format": FORMAT,
        "model": dataclasses.asdict(model.config),
        "embedding": model.embedding.canonical(),
        "train_length": model.train_length,
        "context_length": context_length,
        "tokenizer": tokenizer,
        **plugins_of(model.embedding),
        **({} if adapter is None else {"adapter": dataclasses.asdict(adapter)}),
    }
    (directory / CONFIG).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def plugins_of(embedding: Embedding) -> dict[str, list[str]]:
    """The names of the plug-ins that an embedding comes from, as config.json has them."""
    found = (plugin_of(type(part).__module__) for part in embedding.parts())
    names = sorted({plugin.name for plugin in found if plugin is not None})
    return {"plugins": names} if names else {}


def load_model(
    path: str | os.PathLike[str],
    embedding: Spec | None = None,
    *,
    seed: int = 0,
    resizing: Resizing = "draw",
) -> Decoder:
    """Load the model of a checkpoint, on the CPU and in eval mode.

    `path` is a checkpoint's folder, a Hugging Face folder of one of the families (`families/`), one
    that `fope-lab export` wrote, or `hf:NAME[@REVISION]`, such a model on the hub. Weights are
    float32 whatever the files hold; the tensors of a position embedding have the dtypes of a new
    model.

    `embedding` replaces the position embedding. If the mechanism and its options stay, and only
    frequencies change (`base`, `transforms`), the new embedding keeps the tensors of the checkpoint
    if all their shapes agree; if not, `resizing` says what becomes of them (`RESIZINGS`).
    Otherwise its random and learned tensors are drawn from `seed`.
    Raises CheckpointError, or EmbeddingError if the new embedding does not fit the model.
    """
    import torch

    from fope_lab.model.decoder import Decoder
    from fope_lab.model.lora import add_adapter

    name = hub_name(path)
    directory = model_folder(name) if name else Path(path)
    config = read_config(directory)
    if name and name.tokenizer in PINNED_CONFIGS:
        planned = dataclasses.replace(read_config(path), tokenizer=config.tokenizer)
        if config != planned:
            raise CheckpointError(
                f"{path}: {directory / CONFIG} differs from the configuration that plans use"
            )
    wanted = config.embedding if embedding is None else parse_embedding(embedding)
    if isinstance(wanted, Within):
        wanted = wanted.merged(config.embedding, config.model.num_layers)
    description = _read_json(directory / CONFIG)
    if description.get("model_type") in (None, EXPORTED):
        weights = _our_weights(directory)
    else:
        weights = read_tensors(directory, family_of(description, str(directory)), config)
    if len(weights) < config.model.num_layers:  # before so many layers are made to be compared
        found = f"{config.model.num_layers:,} layers, but {len(weights):,} tensors"
        raise CheckpointError(f"{weight_files(directory)[0]} does not fit its {CONFIG}: {found}")
    with torch.device("meta"):
        model = Decoder(
            config.model,
            wanted,
            train_length=config.train_length,
            seed=seed,
        )
        if config.adapter is not None:
            add_adapter(model, config.adapter, seed)
    if model.embedding != config.embedding:
        weights = _with_embedding_of(model, weights, config.embedding, resizing)
    if differences := _differences(model, weights):
        file = weight_files(directory)[0]
        raise CheckpointError(f"{file} does not fit its {CONFIG}: {differences}")
    _widen(weights, model)
    model.load_untied_state(weights)
    return model.eval()


def read_config(path: str | os.PathLike[str]) -> CheckpointConfig:
    """Read the configuration of a checkpoint directory or of a model of the hub.

    Of a model of the hub only config.json is downloaded, unless it is pinned (see
    `PINNED_CONFIGS`). Raises CheckpointError for a configuration that is missing or wrong.
    """
    name = hub_name(path)
    known = PINNED_CONFIGS.get(name.tokenizer) if name else None
    file = config_file(name) if name and known is None else Path(path) / CONFIG
    if known is None and (Path(path) / SHARDS).is_dir():
        raise CheckpointError(
            f"{path} is the shards that a training by several workers goes on from; the training"
            " leaves a model that can be loaded when it is finished"
        )
    if known is None and not file.is_file():
        lacks = f"is not a checkpoint: it has no {CONFIG}"
        raise CheckpointError(f"{path} {lacks if Path(path).is_dir() else 'is not a folder'}")
    description = _read_json(file) if known is None else dict(known)
    tokenizer = name.tokenizer if name else os.path.abspath(path)
    source = ConfigSource(str(name or file), file.parent, tokenizer)
    kind = description.get("model_type")
    if kind is None:
        return _our_config(description, source)
    read = _exported_config if kind == EXPORTED else read_family_config
    return read(description, source)


def read_description(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The config.json of a folder or of a model of the hub as it is. Raises CheckpointError."""
    name = hub_name(path)
    return _read_json(Path(path) / CONFIG if name is None else config_file(name))


def identifying_files(directory: Path) -> list[str]:
    """The names of the files that define a model: its configuration and its weights.

    Raises CheckpointError if the weights are missing.
    """
    return [CONFIG, *(path.name for path in weight_files(directory))]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise CheckpointError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: it holds no mapping")
    return content


def _with_embedding_of(
    model: Decoder, weights: Mapping[str, Tensor], saved: Embedding, resizing: Resizing
) -> dict[str, Tensor]:
    """Replace the tensors of the checkpoint's position embedding by those of the model's."""
    scales = {n: t for n, t in model.state_dict().items() if n.startswith(SCALES)}
    if _scales(saved, model) == _scales(model.embedding, model):
        scales = {name: weights.get(name, tensor) for name, tensor in scales.items()}
    wanted = {name: t for name, t in model.state_dict().items() if name.startswith(POSITIONS)}
    if keeps_tensors(saved, model.embedding) and wanted.keys() <= weights.keys():
        if all(weights[name].shape == tensor.shape for name, tensor in wanted.items()):
            wanted = {name: weights[name] for name in wanted}
        else:
            resize = RESIZINGS[resizing]
            wanted = {name: resize(weights[name], tensor) for name, tensor in wanted.items()}
    rest = {n: t for n, t in weights.items() if not n.startswith((POSITIONS, SCALES))}
    return rest | wanted | scales


def _scales(embedding: Embedding, model: Decoder) -> list[str | None]:
    """The names of the query scales of the layers of a model with an embedding."""
    plans = embedding.layers(model.config.num_layers)
    scales = (plan.embedding.query_scale for plan in plans)
    return [None if scale is None else scale.name for scale in scales]


def _differences(model: Decoder, weights: Mapping[str, Tensor]) -> str:
    """How the weights differ from the model's tensors, in one line; empty if they fit."""
    state = model.state_dict()
    others = [
        f"{name}: {_kind(weights[name])} instead of {_kind(tensor)}"
        for name, tensor in state.items()
        if name in weights and _kind(weights[name]) != _kind(tensor)
    ]
    differences = {
        "missing": [name for name in model.untied_state() if name not in weights],
        "unexpected": [name for name in weights if name not in state],
        "of another shape": others,
    }
    return "; ".join(
        f"{len(names)} {what} (first {names[0]})" for what, names in differences.items() if names
    )


def _kind(tensor: Tensor) -> str:
    """The shape, and the dtype of integers: floating-point numbers are widened."""
    shape = str(tuple(tensor.shape))
    return shape if tensor.is_floating_point() else f"{shape} {tensor.dtype}"


def _widen(weights: dict[str, Tensor], model: Decoder) -> None:
    """Widen floating-point tensors to float32, a position embedding's to the model's dtype."""
    import torch

    state = model.state_dict()
    for name in list(weights):  # one by one: memory may not hold two copies of a large model
        if weights[name].is_floating_point():
            own = name.startswith((POSITIONS, SCALES))
            weights[name] = weights[name].to(state[name].dtype if own else torch.float32)


def keeps_tensors(saved: Embedding, wanted: Embedding) -> bool:
    """Whether `wanted` keeps the tensors of `saved` if they have the same shapes: the two differ in
    frequencies only. Torch-free."""
    return _but_frequencies(saved.canonical()) == _but_frequencies(wanted.canonical())


def _but_frequencies(composition: Any) -> Any:
    if isinstance(composition, list):
        return [_but_frequencies(each) for each in composition]
    if not isinstance(composition, dict):
        return composition
    frequencies = ("base", TRANSFORMS, "query_scale")
    return {n: _but_frequencies(v) for n, v in composition.items() if n not in frequencies}


Resizing = Literal["draw", "expand", "pad"]
"""How tensors get another size: all drawn, or the old values and a rest that is drawn or 0."""


def _expanded(old: Tensor, drawn: Tensor) -> Tensor:
    corner = tuple(slice(0, min(sizes)) for sizes in zip(old.shape, drawn.shape, strict=True))
    result = drawn.clone()
    result[corner] = old[corner].to(drawn)
    return result


RESIZINGS: Mapping[Resizing, Callable[[Tensor, Tensor], Tensor]] = {
    "draw": lambda old, drawn: drawn,
    "expand": _expanded,
    "pad": lambda old, drawn: _expanded(old, drawn.new_zeros(drawn.shape)),
}
"""A tensor of the new size, from the old one and a drawn one."""
