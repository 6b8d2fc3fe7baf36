"""Which tokenizer a sweep file means: one that exists by its name or path, or one to be trained.

`byte`, `gpt-neox`, a name on the Hugging Face hub, a path, or
`{train: bpe, vocabulary: 4096, corpus: python-docs}`. Nothing here loads or downloads anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import SkipValidation

from fope_lab.config.problems import Problem
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import corpus_json_schema, parse_corpus
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_VOCABULARY
from fope_lab.data.options import build, schema
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, has_chat_template, rounded_up

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>")
"""Of a trained tokenizer: its first ids."""


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer:
    """A tokenizer that is trained on a corpus: byte-level BPE, which can write any text."""

    train: Literal["bpe"]
    vocabulary: Annotated[int, Ge(256 + len(SPECIAL_TOKENS)), Le(1 << 20)]
    corpus: Annotated[Corpus, SkipValidation]

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the tokenizer back."""
        return {
            "train": self.train,
            "vocabulary": self.vocabulary,
            "corpus": self.corpus.canonical(),
        }

    def identity(self) -> dict[str, Any]:
        """What the tokenizer follows from, as JSON."""
        return {**self.canonical(), "corpus": self.corpus.identity()}


TokenizerRecipe = str | TrainedTokenizer
VOCABULARIES = {"byte": ByteTokenizer.vocabulary_size, GPT_NEOX: GPT_NEOX_VOCABULARY}


def parse_tokenizer(value: Any, base: Path) -> TokenizerRecipe:
    """The tokenizer that a description stands for; `base` is as in parse_corpus.

    A path is made absolute, so that it means the same in every process. Raises DataError holding
    every problem found.
    """
    if isinstance(value, Mapping):
        return _parse_trained(dict(value), base)
    if not isinstance(value, str) or not value:
        raise DataError(
            f"found {value!r}, needs a tokenizer's name or path, or a mapping with "
            "train, vocabulary and corpus"
        )
    path = os.path.abspath(base / os.path.expanduser(value))
    return path if value not in VOCABULARIES and os.path.exists(path) else value


def tokenizer_json_schema() -> dict[str, Any]:
    """The JSON Schema of `tokenizer`."""
    trained = schema(TrainedTokenizer, {})
    trained["properties"]["corpus"] = corpus_json_schema()
    named = {"type": "string", "description": "byte, gpt-neox, a name on the hub, or a path"}
    return {"anyOf": [named, trained]}


def known_vocabulary(tokenizer: TokenizerRecipe) -> int | None:
    """The vocabulary that a model needs, or None where the tokenizer must be loaded to tell."""
    if isinstance(tokenizer, TrainedTokenizer):
        return rounded_up(tokenizer.vocabulary)
    return VOCABULARIES.get(tokenizer)


def may_write_chats(tokenizer: TokenizerRecipe) -> bool:
    """Whether it has a chat template, as far as can be told without loading it."""
    if isinstance(tokenizer, TrainedTokenizer) or tokenizer in VOCABULARIES:
        return False
    try:
        return has_chat_template(tokenizer)
    except DataError:
        return True  # it is not there, which is another problem


def _parse_trained(options: dict[str, Any], base: Path) -> TrainedTokenizer:
    problems: Iterable[Problem] = ()
    if "corpus" in options:
        try:
            options["corpus"] = parse_corpus(options["corpus"], base)
            if options["corpus"].kind != "text":
                message = f"found a corpus of {options['corpus'].kind}, needs one of text"
                problems = [Problem(("corpus",), message)]
        except DataError as error:
            problems = [problem.under(("corpus",)) for problem in error.problems]
    try:
        trained = build(TrainedTokenizer, options, "a trained tokenizer")
    except DataError as error:
        raise DataError([*problems, *error.problems]) from error
    if problems:
        raise DataError(problems)
    return trained
