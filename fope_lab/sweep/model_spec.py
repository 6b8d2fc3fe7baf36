"""What a stage's model is: its sizes, tokenizer and embedding, as descendants inherit them.

It is made by the stage, or by none: a checkpoint folder, or a model of the Hugging Face hub.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import read_json, sha256_file
from fope_lab.config.cache import Cache
from fope_lab.config.problems import ConfigError, Problem, missing
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, known_vocabulary
from fope_lab.data.tokenizers.tokenizer import (
    VOCABULARIES,
    is_built_in,
    no_tokenizer,
    tokenizer_identity,
)
from fope_lab.embeddings import Embedding, EmbeddingError, Shape, check_definition, preset_of
from fope_lab.embeddings.layered import Layered
from fope_lab.embeddings.within import WHERES, Within
from fope_lab.model.checkpoint import identifying_files, keeps_tensors, read_config
from fope_lab.model.checkpoint_files import CheckpointConfig, CheckpointError
from fope_lab.model.config import ModelConfig
from fope_lab.model.hub import hub_name
from fope_lab.stages.base import StageConfig
from fope_lab.stages.internal import SwapEmbedding
from fope_lab.stages.key import digest, parts_of_embedding, versions_of
from fope_lab.stages.labels import label, tokenizer_label
from fope_lab.stages.training import Extend, Finetune, FurtherTraining, Pretrain, TrainingConfig
from fope_lab.store.folder import find_checkpoint
from fope_lab.store.records import StoreError

KEPT = ("base", "fraction", "query_scale")
"""The options that another embedding of a trained model must say if its own default differs, which
would change every frequency or logit that the model knows."""


@dataclass(frozen=True)
class ModelSpec:
    """What a stage's model is, as far as its descendants depend on it.

    `train_length` is the length in tokens that the embedding was first trained at, the original
    length of frequency transforms; `last_trained_length` that of the last training.
    `embedding_label` is the embedding as the sweep file names it. `trained_mechanism` is the type
    that the weights were trained with, if another took its place without training.
    """

    tokenizer: TokenizerRecipe
    model: ModelConfig
    scale: str | None
    embedding: Embedding
    embedding_label: str
    train_length: int
    last_trained_length: int
    trained_mechanism: str | None = None

    @property
    def shape(self) -> Shape:
        """The sizes that the embedding is built for."""
        return Shape(**self.model.head_sizes, train_length=self.train_length)

    @property
    def relative_tokenizer(self) -> str | None:
        """The path of the tokenizer, if it is a relative one, which other machines can't open."""
        name = self.tokenizer
        if not isinstance(name, str) or os.path.isabs(os.path.expanduser(name)):
            return None
        return name if tokenizer_identity(name)["tokenizer"] == "local" else None


def model_spec_of(
    spec: StageConfig, given: Mapping[str, Any], parent: ModelSpec | None, cache: Cache
) -> ModelSpec:
    """Return the model of a stage, given the fields of its section and its parent's model. Raises
    ConfigError if there can be none, or it has no positions for the longest sequence."""
    if isinstance(spec, Pretrain):
        model_spec = _new_model(spec, given)
    else:
        assert parent is not None, "only a pretraining starts from no model"
        model_spec = _with_embedding(parent, spec, given)
    if model_spec is not parent:
        embedding, shape = model_spec.embedding, model_spec.shape
        try:
            key = ("embedding fits", embedding, shape)
            cache.get(key, lambda: check_definition(embedding, shape))
        except EmbeddingError as error:
            raise ConfigError(replace(p, path=("embedding",)) for p in error.problems) from error
    if isinstance(spec, SwapEmbedding) and parent is not None:
        _check_untrained(model_spec, parent, cache)
        mechanism = parent.trained_mechanism or parent.embedding.mechanism
        model_spec = replace(model_spec, trained_mechanism=mechanism)
    pads = isinstance(spec, Extend) and spec.resizing == "pad"
    if pads and parent and not keeps_tensors(parent.embedding, model_spec.embedding):
        keeps = f"{model_spec.embedding_label} keeps nothing of {parent.embedding_label}"
        message = f"found pad, but {keeps}, because more than frequencies differs"
        raise ConfigError(Problem(("resizing",), message, allowed=("draw", "expand")))
    if isinstance(spec, Finetune) and spec.tokenizer is not None:
        _check_tokenizer(model_spec, spec.tokenizer)
        model_spec = replace(model_spec, tokenizer=spec.tokenizer)
    if isinstance(spec, TrainingConfig):
        if spec.train.adapter is not None:
            faults = spec.train.adapter.misfits(model_spec.model)
            if problems := [fault.under(("train", "adapter")) for fault in faults]:
                raise ConfigError(problems)
        length = spec.data.length
        model_spec = replace(model_spec, last_trained_length=length, trained_mechanism=None)
    if longest := spec.max_sequence_length():
        positions = model_spec.embedding.longest_sequence(model_spec.shape)
        if positions is not None and longest[1] > positions:
            has = f"{model_spec.embedding_label} has positions for at most {positions} tokens"
            raise ConfigError(Problem(longest[0], f"found {longest[1]}, but {has}"))
    return model_spec


def learned_parameters_of(model_spec: ModelSpec, cache: Cache) -> int:
    """Return the number of parameters that the position embedding learns, in all layers."""
    layers, shape = model_spec.model.num_layers, model_spec.shape
    return cache.get(
        ("learned parameters", model_spec.embedding, layers, shape),
        lambda: model_spec.embedding.learned_parameters(shape, layers),
    )


def _new_model(spec: Pretrain, given: Mapping[str, Any]) -> ModelSpec:
    """With the tokenizer's vocabulary unless the sizes give a larger one."""
    model = given["model"]
    vocabulary, name = known_vocabulary(spec.tokenizer), tokenizer_label(spec.tokenizer)
    sizes = {"vocab_size": vocabulary, **spec.model}
    if sizes["vocab_size"] is None:
        if isinstance(spec.tokenizer, str):
            try:
                tokenizer_identity(spec.tokenizer)
            except DataError as error:
                raise ConfigError(Problem(("tokenizer",), str(error))) from error
        message = f"the vocabulary of the tokenizer {name!r} is known only once it is loaded"
        raise ConfigError(missing(("model", "vocab_size"), message))
    if vocabulary is not None and sizes["vocab_size"] < vocabulary:
        found = f"found {sizes['vocab_size']}"
        message = f"{found}, needs at least the {vocabulary} tokens of the tokenizer {name!r}"
        raise ConfigError(Problem(("model", "vocab_size"), message))
    return ModelSpec(
        tokenizer=spec.tokenizer,
        model=ModelConfig(**sizes),
        scale=model.get("scale") if isinstance(model, Mapping) else str(model),
        embedding=spec.embedding,
        embedding_label=label(given["embedding"]),
        train_length=spec.data.length,
        last_trained_length=spec.data.length,
    )


def _with_embedding(parent: ModelSpec, spec: StageConfig, given: Mapping[str, Any]) -> ModelSpec:
    if not isinstance(spec, FurtherTraining | SwapEmbedding) or spec.embedding is None:
        return parent
    embedding, own, layers = given["embedding"], spec.embedding, parent.model.num_layers
    if isinstance(own, Within):
        merged, of = own.merged(parent.embedding, layers), own.embedding
        replaced = [layer.embedding for layer in own.replaced(parent.embedding, layers)]
    else:
        if isinstance(parent.embedding, Layered) and not isinstance(own, Layered):
            message = (
                f"found {label(embedding)} for a model with {parent.embedding_label}, whose layers"
                " differ: which of them get it?"
            )
            needs = f"where: {', where: '.join(WHERES)}, or a pattern of all layers"
            raise ConfigError(Problem(("embedding",), message, needs))
        merged, of, replaced = own, own, [parent.embedding]
    given_names = embedding.keys() if isinstance(embedding, Mapping) else ()
    for name in KEPT:
        others = [getattr(each, name, None) for each in replaced]
        differs = [each for each in others if each not in (None, getattr(of, name, None))]
        if name not in given_names and hasattr(of, name) and differs:
            own_words, words = (_words(value) for value in (getattr(of, name), differs[0]))
            message = (
                f"set `{name}` explicitly: default {own_words} differs from the parent's {words}; "
                f"{{type: …, {name}: {words}}} keeps the parent's"
            )
            raise ConfigError(Problem(("embedding",), message))
    return replace(parent, embedding=merged, embedding_label=label(embedding))


def _words(value: Any) -> str:
    """An option as a sweep file has it."""
    if value is None or isinstance(value, float):
        return "null" if value is None else f"{value:g}"
    options = ", ".join(f"{name}: {option}" for name, option in value.canonical().items())
    return f"{{{options}}}"


def _check_untrained(model_spec: ModelSpec, parent: ModelSpec, cache: Cache) -> None:
    """Refuse learned parameters that the parent's model lacks."""
    learned = learned_parameters_of(model_spec, cache)
    sizes = [
        (one.embedding.learned_sizes(one.shape), one.embedding.query_scale)
        for one in (model_spec, parent)
    ]
    same = sizes[0] == sizes[1] and keeps_tensors(parent.embedding, model_spec.embedding)
    if learned and not same:
        message = (
            f"{model_spec.embedding_label} has {learned:,} learned parameters, which the model with"
            f" {parent.embedding_label} does not have and only training would set"
        )
        needs = "an embedding without learned parameters, or a stage of kind extend that trains"
        raise ConfigError(Problem(("embedding",), message, needs))


def _check_tokenizer(model_spec: ModelSpec, tokenizer: TokenizerRecipe) -> None:
    name, vocabulary = tokenizer_label(tokenizer), known_vocabulary(tokenizer)
    own, size = model_spec.tokenizer, model_spec.model.vocab_size
    if own != tokenizer and (is_built_in(own) or is_built_in(tokenizer)):
        message = f"the ids of {name} differ from those of the model's own tokenizer"
        raise ConfigError(Problem(("tokenizer",), f"{message}, {tokenizer_label(own)}"))
    if vocabulary is not None and vocabulary > size:
        message = f"{name} has {vocabulary} tokens, but the model has a vocabulary of {size}"
        raise ConfigError(Problem(("tokenizer",), message))


@dataclass(frozen=True)
class ExternalModel:
    """A model that no stage makes: its folder or hub name, and a hash of its content or commit."""

    path: Path
    key: str
    model_spec: ModelSpec


def read_checkpoint(reference: str, base: Path) -> ExternalModel:
    """Return the model in a folder, relative to `base` or to the current folder. Raises
    CheckpointError if there is none."""
    given = os.path.expanduser(reference)
    tried = [os.path.abspath(place / given) for place in (base, Path.cwd())]
    path = next((path for path in tried if os.path.isdir(path)), None)
    if path is None:
        raise CheckpointError(f"no folder {' nor '.join(dict.fromkeys(tried))}")
    try:
        folder = find_checkpoint(os.path.realpath(path))
        config = read_config(folder)
        own = config.tokenizer == str(folder)  # a Hugging Face folder, which has its own tokenizer
        if own and not any((folder / name).is_file() for name in VOCABULARIES):
            raise CheckpointError(no_tokenizer(folder))
        files = {name: _sha256(folder, name) for name in identifying_files(folder)}
        identity: dict[str, Any] = {"checkpoint": files}
        if config.tokenizer.startswith(str(folder)):  # a file of the folder
            identity["tokenizer"] = tokenizer_identity(config.tokenizer)
    except (StoreError, DataError) as error:
        raise CheckpointError(str(error)) from None
    return _external(folder, identity, config)


def read_hub_model(reference: str) -> ExternalModel:
    """Return the model `hf:NAME@COMMIT` of the hub; only its config.json is downloaded. Raises
    CheckpointError if it is not pinned to a commit, or if its config.json can't be read."""
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
    return _external(Path(str(name)), identity, config)


def _external(path: Path, identity: dict[str, Any], config: CheckpointConfig) -> ExternalModel:
    if versions := versions_of(parts_of_embedding(config.embedding)):
        identity = {**identity, "versions": versions}
    spec = ModelSpec(
        tokenizer=config.tokenizer,
        model=config.model,
        scale=None,
        embedding=config.embedding,
        embedding_label=label(preset_of(config.embedding)),
        train_length=config.train_length,
        last_trained_length=config.context_length,
    )
    return ExternalModel(path, digest(identity), spec)


def _sha256(folder: Path, name: str) -> str:
    """From the manifest if the size fits: this spares reading gigabytes."""
    with contextlib.suppress(TypeError, KeyError, OSError):  # none, or of another format
        manifest: Any = read_json(folder / "manifest.json")
        entry = manifest["files"][name]
        if entry["size"] == (folder / name).stat().st_size:
            return str(entry["sha256"])
    try:
        return sha256_file(folder / name)
    except OSError as error:
        raise CheckpointError(f"{folder / name} can't be read: {error.strerror}") from None
