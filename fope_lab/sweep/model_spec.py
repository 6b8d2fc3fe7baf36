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
class Lineage:
    """What a stage's model is, as far as its descendants depend on it.

    `train_length` is the length that the embedding was first trained at, which frequency transforms
    call the original length; `label` is the embedding as the sweep file names it.
    """

    tokenizer: TokenizerRecipe
    model: ModelConfig
    scale: str | None
    embedding: dict[str, Any]
    label: str
    train_length: int


def lineage_of(
    spec: StageConfig,
    section: Mapping[str, Any],
    parent: Lineage | None,
    memo: Memo,
    report: Report,
) -> Lineage | None:
    """The lineage of a stage, given its section of the file and its parent's lineage.

    None after reporting that the model can't be made, or that the embedding does not fit it or the
    stage's lengths.
    """
    lineage = _own_or_inherited(spec, section, parent, memo, report)
    lineage = lineage and _with_its_tokenizer(lineage, spec, report)
    if lineage is None or not _reaches(spec, lineage, memo, report):
        return None
    return lineage


def learned_of(lineage: Lineage, memo: Memo) -> int:
    """How many parameters the position embedding learns, in all layers."""
    sizes = _sizes(lineage)
    return memo.get(
        ("learned parameters", _text(lineage), lineage.model.num_layers, *sizes.values()),
        lambda: learned_parameters(lineage.embedding, lineage.model.num_layers, **sizes),
    )


def _own_or_inherited(
    spec: StageConfig,
    section: Mapping[str, Any],
    parent: Lineage | None,
    memo: Memo,
    report: Report,
) -> Lineage | None:
    if isinstance(spec, Pretrain):
        model = _model(spec, report)
        if model is None:
            return None
        raw = section["model"]
        lineage = Lineage(
            tokenizer=spec.tokenizer,
            model=model,
            scale=raw.get("scale") if isinstance(raw, Mapping) else str(raw),
            embedding=spec.embedding,
            label=label(section["embedding"]),
            train_length=spec.data.length,
        )
    elif parent is None:
        return None
    elif isinstance(spec, FurtherTraining) and spec.embedding is not None:
        if misfit := _other_base(section["embedding"], spec.embedding, parent):
            report(("embedding",), misfit)
            return None
        lineage = dataclasses.replace(
            parent, embedding=spec.embedding, label=label(section["embedding"])
        )
    else:
        return parent
    return lineage if _fits(lineage, memo, report) else None


def _other_base(given: Any, embedding: Mapping[str, Any], parent: Lineage) -> str | None:
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


def _with_its_tokenizer(lineage: Lineage, spec: StageConfig, report: Report) -> Lineage | None:
    """The lineage with the tokenizer that a stage gives a model that has one already."""
    if not isinstance(spec, Finetune) or spec.tokenizer is None:
        return lineage
    if (spec.tokenizer == "byte") != (lineage.tokenizer == "byte"):
        names = tokenizer_label(spec.tokenizer), tokenizer_label(lineage.tokenizer)
        report(("tokenizer",), f"{names[0]} has other ids than the model's own, {names[1]}")
        return None
    needed, there = known_vocabulary(spec.tokenizer), lineage.model.vocab_size
    if needed is not None and needed > there:
        name = tokenizer_label(spec.tokenizer)
        report(("tokenizer",), f"{name} has {needed} tokens, and the model has {there}")
        return None
    return dataclasses.replace(lineage, tokenizer=spec.tokenizer)


def _fits(lineage: Lineage, memo: Memo, report: Report) -> bool:
    sizes = _sizes(lineage)
    try:
        memo.get(
            ("embedding fits", _text(lineage), *sizes.values()),
            lambda: check_embedding(lineage.embedding, **sizes),
        )
    except EmbeddingError as error:
        for problem in error.problems:
            report(("embedding",), problem.message)
        return False
    return True


def _reaches(spec: StageConfig, lineage: Lineage, memo: Memo, report: Report) -> bool:
    """Whether the embedding has positions for the stage's longest sequence."""
    read = spec.max_sequence_length()
    if read is None:
        return True
    path, length = read
    sizes = _sizes(lineage)
    longest = memo.get(
        ("longest sequence", _text(lineage), *sizes.values()),
        lambda: longest_sequence(lineage.embedding, **sizes),
    )
    if longest is None or length <= longest:
        return True
    report(
        path,
        f"found {length}, but {lineage.label} has positions for at most {longest} tokens",
    )
    return False


def _sizes(lineage: Lineage) -> dict[str, Any]:
    model = lineage.model
    return {
        "head_dim": model.head_dim,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "train_length": lineage.train_length,
    }


def _text(lineage: Lineage) -> str:
    return json.dumps(lineage.embedding, sort_keys=True)


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
