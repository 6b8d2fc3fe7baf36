"""Sections of a stage that other packages define and parse: embedding, model, corpus and data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

from fope_lab.analysis.base import Analysis
from fope_lab.analysis.spec import parse_analysis
from fope_lab.config.parsed import Parsed
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.recipe import Data, parse_data
from fope_lab.data.tokenizers.recipe import TokenizerRecipe, parse_tokenizer
from fope_lab.embeddings import Embedding, parse_embedding
from fope_lab.stages.model_section import parse_model


def _parse_embedding(value: Any, base: Path) -> Embedding:
    return parse_embedding(value, at=())


def _section(name: str) -> functools.partial[dict[str, Any]]:
    """The JSON Schema of a section by its name; sweep/schema.py has the schema itself."""
    return functools.partial(dict, section=name)


EmbeddingSection = Annotated[Embedding, Parsed(_parse_embedding, _section("embedding"))]
ModelSection = Annotated[Any, Parsed(parse_model, _section("model"))]
AnalysisSection = Annotated[Analysis, Parsed(parse_analysis, _section("analyses"))]
CorpusSection = Annotated[Corpus, Parsed(parse_corpus, _section("corpus"))]
DataSection = Annotated[Data, Parsed(parse_data, _section("data"))]
TokenizerSection = Annotated[TokenizerRecipe, Parsed(parse_tokenizer, _section("tokenizer"))]
