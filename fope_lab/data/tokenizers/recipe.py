"""Which tokenizer a sweep file means: one that exists by its name or path, or one to be trained.

`byte`, `gpt-neox`, a name on the Hugging Face hub, a path, or
`{train: bpe, vocabulary: 4096, corpus: python-docs}`. Nothing here loads or downloads anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.named_types import given_options
from fope_lab.config.options import entry_of
from fope_lab.config.parsed import Parsed
from fope_lab.config.problems import ConfigError, Problem, shown
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import corpus_json_schema, parse_corpus
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_VOCABULARY
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, has_chat_template, rounded_up

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>")
"""Of a trained tokenizer: its first ids."""


def _text_corpus(value: Any, base: Path) -> Corpus:
    corpus = parse_corpus(value, base)
    if corpus.kind != "text":
        raise DataError(f"found a corpus of {corpus.kind}, needs one of text")
    return corpus


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer:
    """A tokenizer that is trained on a corpus: byte-level BPE, which can write any text."""

    train: Literal["bpe"]
    vocabulary: Annotated[
        int, Interval(ge=256 + len(SPECIAL_TOKENS), le=1 << 20), Doc("The number of tokens.")
    ]
    corpus: Annotated[Corpus, Parsed(_text_corpus, corpus_json_schema)]

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the tokenizer back."""
        return given_options(self)

    def identity(self) -> dict[str, Any]:
        """What the tokenizer follows from, as JSON."""
        return {**self.canonical(), "corpus": self.corpus.identity()}


TRAINED = entry_of(TrainedTokenizer, "a trained tokenizer")
TokenizerRecipe = str | TrainedTokenizer
VOCABULARIES = {"byte": ByteTokenizer.vocabulary_size, GPT_NEOX: GPT_NEOX_VOCABULARY}


def parse_tokenizer(value: Any, base: Path) -> TokenizerRecipe:
    """The tokenizer that a description stands for; `base` is as in parse_corpus.

    A path is made absolute, so that it means the same in every process. Raises DataError holding
    every problem found.
    """
    if isinstance(value, Mapping):
        try:
            return TRAINED.read(value, base)
        except ConfigError as error:
            raise DataError(error.problems) from error
    if not isinstance(value, str) or not value:
        needs = "a tokenizer's name or path, or a mapping with train, vocabulary and corpus"
        raise DataError(Problem((), f"found {shown(value)}", needs))
    path = os.path.abspath(base / os.path.expanduser(value))
    return path if value not in VOCABULARIES and os.path.exists(path) else value


def tokenizer_json_schema() -> dict[str, Any]:
    """The JSON Schema of `tokenizer`."""
    named = {"type": "string", "description": "byte, gpt-neox, a name on the hub, or a path"}
    return {"anyOf": [named, TRAINED.json_schema()]}


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
