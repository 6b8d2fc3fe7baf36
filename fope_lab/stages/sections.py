"""Parts of a stage's section that other packages define and parse, and the sizes of a model: a
scale's name, sizes, or a scale with changed sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import Parsed
from fope_lab.config.options import Entry, Option, entry_of
from fope_lab.config.problems import ConfigError, Problem, collecting, shown, unknown_name
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import corpus_json_schema, parse_corpus
from fope_lab.data.recipe import Data, data_json_schema, parse_data
from fope_lab.data.tokenizers.recipe import (
    TokenizerRecipe,
    may_have_prefix,
    parse_tokenizer,
    tokenizer_json_schema,
)
from fope_lab.data.tokenizers.tokenizer import Prefix
from fope_lab.embeddings import EMBEDDINGS, Embedding, parse_embedding
from fope_lab.embeddings.spec import WHERE
from fope_lab.embeddings.within import WHERES
from fope_lab.model.config import SCALES, ModelConfig

PrefixOption = Annotated[
    Prefix,
    Doc(
        "What begins every text that the model reads: document, window or prompt. tokenizer: what"
        " its tokenizer puts there, such as Llama's <s>, which takes a place and is not predicted."
        " none: nothing."
    ),
]


def windows_prefix(prefix: Prefix, tokenizer: TokenizerRecipe) -> str | None:
    """What the key of a stage says of the prefix, if it reads documents or windows, which had none
    before there was the option: what has none keeps its key."""
    return prefix if prefix == "tokenizer" and may_have_prefix(tokenizer) else None


SIZES = dataclasses.replace(entry_of(ModelConfig, "a model without a scale"), beside=("scale",))
CHANGES: Entry[dict[str, Any]] = Entry(
    "a model",
    SIZES.description,
    {name: Option(option.annotation, default=None) for name, option in SIZES.options.items()},
    dict,
    beside=SIZES.beside,
)
"""The sizes that may be given beside a scale: none has to be."""


def parse_model(value: Any, base: Path) -> dict[str, Any]:
    """Fields of a ModelConfig, `vocab_size` only if given. Raises ConfigError."""
    if isinstance(value, str):
        return _scale(value)
    if not isinstance(value, Mapping):
        raise ConfigError(Problem((), f"found {shown(value)}", "a scale or a mapping of sizes"))
    problems: list[Problem] = []
    fields: dict[str, Any] = {}
    given = {name: size for name, size in value.items() if name != "scale"}
    if "scale" in value:
        with collecting(problems, ("scale",)):
            fields = _scale(value["scale"])
    with collecting(problems):
        (CHANGES if "scale" in value else SIZES).values(given)
    if problems:
        raise ConfigError(problems)
    fields |= given
    SIZES.read(fields)  # sizes that do not go together
    return fields


def model_json_schema() -> dict[str, Any]:
    """The JSON Schema of a scale's name, or of a mapping of sizes."""
    scales = {"description": "The name of a scale.", "enum": list(SCALES)}
    sizes = SIZES.json_schema()
    del sizes["properties"]["vocab_size"]["default"]  # the tokenizer's
    return {"anyOf": [scales, {**sizes, "properties": {"scale": scales, **sizes["properties"]}}]}


def _scale(name: Any) -> dict[str, Any]:
    """The sizes of a scale without those that follow from others, which a file may change."""
    if not isinstance(name, str) or name not in SCALES:
        raise ConfigError(unknown_name((), "scale", name, SCALES))
    scale = SCALES[name]
    width = scale.num_heads * scale.head_dim
    following = {"num_kv_heads": scale.num_heads, "hidden_size": width}
    following |= {"intermediate_size": 4 * width, "vocab_size": scale.vocab_size}
    fields = dataclasses.asdict(scale).items()
    return {k: v for k, v in fields if k not in following or v != following[k]}


def embedding_json_schema() -> dict[str, Any]:
    """That of an embedding, which may say in which layers of a model it stands."""
    schema = EMBEDDINGS.json_schema()
    told = "For a model that there is: the layers that get it. The others keep theirs."
    for one in schema["anyOf"]:
        if "properties" in one:
            one["properties"][WHERE] = {"enum": list(WHERES), "description": told}
    return schema


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {}
"""The JSON Schemas of the parts that `section` declares, by name."""


def section(
    name: str, parse: Callable[[Any, Path], Any], schema: Callable[[], dict[str, Any]]
) -> Parsed:
    """A part that several kinds of stages share. Their JSON Schemas refer to its own by `name`;
    sweep/schema.py writes it once."""
    SECTIONS[name] = schema
    return Parsed(parse, functools.partial(dict, section=name))


EmbeddingSection = Annotated[
    Embedding,
    section("embedding", lambda value, _: parse_embedding(value, at=()), embedding_json_schema),
]
ModelSection = Annotated[Any, section("model", parse_model, model_json_schema)]
CorpusSection = Annotated[Corpus, section("corpus", parse_corpus, corpus_json_schema)]
DataSection = Annotated[Data, section("data", parse_data, data_json_schema)]
TokenizerSection = Annotated[
    TokenizerRecipe, section("tokenizer", parse_tokenizer, tokenizer_json_schema)
]
