"""What a stage's model is: its sizes, tokenizer and embedding, as descendants inherit them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.cache import Memo
from fope_lab.config.problems import FieldPath
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, known_vocabulary
from fope_lab.data.tokenizers.tokenizer import tokenizer_identity
from fope_lab.embeddings import (
    EmbeddingError,
    check_embedding,
    learned_parameters,
    longest_sequence,
)
from fope_lab.embeddings.spec import parse_embedding
from fope_lab.model.config import ModelConfig
from fope_lab.stages import (
    Finetune,
    FurtherTraining,
    Pretrain,
    StageConfig,
)
from fope_lab.stages.labels import label, tokenizer_label

Report = Callable[[FieldPath, str], None]
"""Takes a problem: its path inside the stage's section, and the message."""


@dataclass(frozen=True)
class ModelSpec:
    """What a stage's model is, as far as its descendants depend on it.

    `train_length` is the length that the embedding was first trained at, which frequency transforms
    call the original length; `embedding_label` is the embedding as the sweep file names it.
    """

    tokenizer: TokenizerRecipe
    model: ModelConfig
    scale: str | None
    embedding: dict[str, Any]
    embedding_label: str
    train_length: int


def model_spec_of(
    spec: StageConfig,
    section: Mapping[str, Any],
    parent: ModelSpec | None,
    memo: Memo,
    report: Report,
) -> ModelSpec | None:
    """The model of a stage, given its section of the file and its parent's model.

    None after reporting that the model can't be made, or that the embedding does not fit it or the
    stage's lengths.
    """
    model_spec = _own_or_inherited(spec, section, parent, memo, report)
    model_spec = model_spec and _with_its_tokenizer(model_spec, spec, report)
    if model_spec is None or not _reaches(spec, model_spec, memo, report):
        return None
    return model_spec


def learned_parameters_of(model_spec: ModelSpec, memo: Memo) -> int:
    """How many parameters the position embedding learns, in all layers."""
    sizes = _sizes(model_spec)
    return memo.get(
        ("learned parameters", _text(model_spec), model_spec.model.num_layers, *sizes.values()),
        lambda: learned_parameters(model_spec.embedding, model_spec.model.num_layers, **sizes),
    )


def _own_or_inherited(
    spec: StageConfig,
    section: Mapping[str, Any],
    parent: ModelSpec | None,
    memo: Memo,
    report: Report,
) -> ModelSpec | None:
    if isinstance(spec, Pretrain):
        model = _model(spec, report)
        if model is None:
            return None
        raw = section["model"]
        model_spec = ModelSpec(
            tokenizer=spec.tokenizer,
            model=model,
            scale=raw.get("scale") if isinstance(raw, Mapping) else str(raw),
            embedding=spec.embedding,
            embedding_label=label(section["embedding"]),
            train_length=spec.data.length,
        )
    elif parent is None:
        return None
    elif isinstance(spec, FurtherTraining) and spec.embedding is not None:
        if misfit := _other_base(section["embedding"], spec.embedding, parent):
            report(("embedding",), misfit)
            return None
        model_spec = dataclasses.replace(
            parent, embedding=spec.embedding, embedding_label=label(section["embedding"])
        )
    else:
        return parent
    return model_spec if _fits(model_spec, memo, report) else None


def _other_base(given: Any, embedding: Mapping[str, Any], parent: ModelSpec) -> str | None:
    """Why an embedding's base must be given: a default that is not the parent's would change every
    frequency that the parent knows, and no factor would be what it says."""
    base, parents = _base(embedding), _base(parent.embedding)
    told = isinstance(given, Mapping) and "base" in given
    if told or base is None or parents is None or base == parents:
        return None
    return (
        f"{label(given)} says no base: the default is {base:g}, and the parent's base is"
        f" {parents:g}; give one, as in {{type: …, base: {parents:g}}}"
    )


def _base(embedding: Mapping[str, Any]) -> float | None:
    return getattr(parse_embedding(embedding), "base", None)


def _with_its_tokenizer(
    model_spec: ModelSpec, spec: StageConfig, report: Report
) -> ModelSpec | None:
    """The model with the tokenizer that a stage gives a model that has one already."""
    if not isinstance(spec, Finetune) or spec.tokenizer is None:
        return model_spec
    if (spec.tokenizer == "byte") != (model_spec.tokenizer == "byte"):
        names = tokenizer_label(spec.tokenizer), tokenizer_label(model_spec.tokenizer)
        report(("tokenizer",), f"{names[0]} has other ids than the model's own, {names[1]}")
        return None
    needed, there = known_vocabulary(spec.tokenizer), model_spec.model.vocab_size
    if needed is not None and needed > there:
        name = tokenizer_label(spec.tokenizer)
        report(("tokenizer",), f"{name} has {needed} tokens, and the model has {there}")
        return None
    return dataclasses.replace(model_spec, tokenizer=spec.tokenizer)


def _fits(model_spec: ModelSpec, memo: Memo, report: Report) -> bool:
    sizes = _sizes(model_spec)
    try:
        memo.get(
            ("embedding fits", _text(model_spec), *sizes.values()),
            lambda: check_embedding(model_spec.embedding, **sizes),
        )
    except EmbeddingError as error:
        for problem in error.problems:
            report(("embedding",), problem.message)
        return False
    return True


def _reaches(spec: StageConfig, model_spec: ModelSpec, memo: Memo, report: Report) -> bool:
    """Whether the embedding has positions for the stage's longest sequence."""
    read = spec.max_sequence_length()
    if read is None:
        return True
    path, length = read
    sizes = _sizes(model_spec)
    longest = memo.get(
        ("longest sequence", _text(model_spec), *sizes.values()),
        lambda: longest_sequence(model_spec.embedding, **sizes),
    )
    if longest is None or length <= longest:
        return True
    report(
        path,
        f"found {length}, but {model_spec.embedding_label} has positions for at most {longest} "
        "tokens",
    )
    return False


def _sizes(model_spec: ModelSpec) -> dict[str, Any]:
    model = model_spec.model
    return {
        "head_dim": model.head_dim,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "train_length": model_spec.train_length,
    }


def _text(model_spec: ModelSpec) -> str:
    return json.dumps(model_spec.embedding, sort_keys=True)


def _model(spec: Pretrain, report: Report) -> ModelConfig | None:
    """The model's sizes; its vocabulary is the tokenizer's unless the sweep gives a larger one."""
    vocabulary, name = known_vocabulary(spec.tokenizer), tokenizer_label(spec.tokenizer)
    fields = {"vocab_size": vocabulary, **spec.model}
    if fields["vocab_size"] is None:
        if isinstance(spec.tokenizer, str):
            try:
                tokenizer_identity(spec.tokenizer)
            except DataError as error:
                report(("tokenizer",), str(error))
                return None
        report(
            ("model", "vocab_size"),
            f"is missing: the vocabulary of the tokenizer {name!r} is known only once it is loaded",
        )
        return None
    if vocabulary is not None and fields["vocab_size"] < vocabulary:
        report(
            ("model", "vocab_size"),
            f"found {fields['vocab_size']}, needs at least the {vocabulary} tokens of the "
            f"tokenizer {name!r}",
        )
        return None
    return ModelConfig(**fields)
