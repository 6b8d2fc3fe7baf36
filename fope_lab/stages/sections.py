"""Sections of a stage that other packages define and parse: embedding, model, corpus and data.

Each is a pydantic type whose value the owning package makes, so that a new embedding or corpus is
known here as soon as its own file is there.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError, ValidationInfo
from pydantic_core import core_schema

from fope_lab.analysis import Analysis, parse_analysis
from fope_lab.config.problems import FieldPath, did_you_mean, name_list, shown
from fope_lab.config.pydantic_errors import SectionError, reworded
from fope_lab.data.corpora.registry import Corpus, parse_corpus
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data, parse_data
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, parse_tokenizer
from fope_lab.embeddings import (
    EmbeddingError,
    resolve_embedding,
)
from fope_lab.model.config import SCALES, ModelConfig

MAX_SIZE = 1_000_000
"""Of any size of a model: a larger one is a slip, and would be computed with."""


@dataclass(frozen=True)
class Parsed:
    """Annotation: the field's value is what `parse(value, base)` returns.

    `base` is the folder that relative paths start from. `parse` raises SectionError, and what it
    returns is shared by all stages of a grid that have the same value: it is never changed.
    """

    section: str
    """Its name in the JSON Schema; schema.py has its schema."""
    parse: Callable[[Any, Path], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        def validate(value: Any, info: ValidationInfo) -> Any:
            if info.context is None:
                return self.parse(value, Path.cwd())
            base, cache = info.context["base"], info.context.get("cache")
            if cache is None:
                return self.parse(value, base)
            key = (self.parse, base, json.dumps(value, sort_keys=True))
            return cache.get(key, lambda: self.parse(value, base))

        return core_schema.with_info_plain_validator_function(validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"section": self.section}


def _parse_embedding(value: Any, base: Path) -> dict[str, Any]:
    try:
        return resolve_embedding(value, at=())
    except EmbeddingError as error:
        raise SectionError([(p.path, reworded(p.message)) for p in error.problems]) from error


def _parse_corpus(value: Any, base: Path) -> Corpus:
    try:
        return parse_corpus(value, base)
    except DataError as error:
        raise SectionError([(p.path, reworded(p.message)) for p in error.problems]) from error


def _parse_data(value: Any, base: Path) -> Data:
    try:
        return parse_data(value, base)
    except DataError as error:
        raise SectionError([(p.path, reworded(p.message)) for p in error.problems]) from error


def _parse_analysis(value: Any, base: Path) -> Analysis:
    try:
        return parse_analysis(value)
    except DataError as error:
        raise SectionError([(p.path, reworded(p.message)) for p in error.problems]) from error


def _parse_tokenizer(value: Any, base: Path) -> TokenizerRecipe:
    try:
        return parse_tokenizer(value, base)
    except DataError as error:
        raise SectionError([(p.path, reworded(p.message)) for p in error.problems]) from error


def _parse_model(value: Any, base: Path) -> dict[str, Any]:
    """Fields of a ModelConfig; `vocab_size` only if it is given, or else it is the tokenizer's."""
    given = {"scale": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        message = f"found {shown(value)}, needs a scale or a mapping of sizes"
        raise SectionError([((), message)])
    found: list[tuple[FieldPath, str]] = []
    names = [field.name for field in dataclasses.fields(ModelConfig)]
    for name in [name for name in given if name not in ("scale", *names)]:
        near = did_you_mean(name, [*names, "scale"])
        allowed = name_list(["scale", *names])
        found.append(((name,), f"unknown key {name!r}{near} (allowed: {allowed})"))
    fields: dict[str, Any] = {}
    if "scale" in given:
        scale = SCALES.get(given["scale"]) if isinstance(given["scale"], str) else None
        if scale is None:
            near = did_you_mean(given["scale"], list(SCALES))
            at: FieldPath = () if isinstance(value, str) else ("scale",)
            message = f"unknown scale {shown(given['scale'])}{near} (allowed: {name_list(SCALES)})"
            found.append((at, message))
        else:
            fields = dataclasses.asdict(scale)
            del fields["vocab_size"]
            # Sizes that follow from others must follow from the ones given here.
            fields = {k: v for k, v in fields.items() if not _follows(scale, k)}
    fields |= {name: item for name, item in given.items() if name in names}
    found += _wrong_sizes(fields, scale_given="scale" in given)
    if found:
        raise SectionError(found)
    return fields


def _wrong_sizes(fields: Mapping[str, Any], scale_given: bool) -> Iterator[tuple[FieldPath, str]]:
    try:
        # As JSON, because strict Python input would have to be a ModelConfig already.
        _model_adapter().validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        for detail in error.errors():
            path = tuple(
                part for part in detail["loc"] if part in fields or "missing" in detail["type"]
            )
            if detail["type"].startswith("missing"):
                if not scale_given:
                    yield path, "is missing (or give a scale)"
            elif path:
                yield path, f"found {shown(detail['input'])}, needs {reworded(detail['msg'])}"
            else:
                yield path, reworded(detail["msg"])
    for name, size in fields.items():
        if isinstance(size, int) and size > MAX_SIZE:
            yield (name,), f"found {size}, needs at most {MAX_SIZE:,}"


@functools.cache
def _model_adapter() -> TypeAdapter[ModelConfig]:
    return TypeAdapter(ModelConfig)


def _follows(scale: ModelConfig, name: str) -> bool:
    """Whether a size of a scale is what it would be if it were left out."""
    sizes = {
        "num_kv_heads": scale.num_heads,
        "hidden_size": scale.num_heads * scale.head_dim,
        "intermediate_size": 4 * scale.num_heads * scale.head_dim,
    }
    return bool(getattr(scale, name) == sizes.get(name))


EmbeddingSection = Annotated[Any, Parsed("embedding", _parse_embedding)]
ModelSection = Annotated[Any, Parsed("model", _parse_model)]
AnalysisSection = Annotated[Any, Parsed("analyses", _parse_analysis)]
CorpusSection = Annotated[Any, Parsed("corpus", _parse_corpus)]
DataSection = Annotated[Any, Parsed("data", _parse_data)]
TokenizerSection = Annotated[Any, Parsed("tokenizer", _parse_tokenizer)]
