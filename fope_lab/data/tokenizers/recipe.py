"""Which tokenizer a sweep file means: one that exists by its name or path, or one to be trained.

`byte`, `symbols:parity`, `gpt-neox`, a name on the Hugging Face hub, a path, or
`{train: bpe, vocabulary: 4096, corpus: python-docs}`. Nothing is loaded or downloaded before a
stage calls `write`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import Parsed
from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.options import Registry
from fope_lab.config.problems import Problem, in_few_words, shown, unknown_name
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import corpus_json_schema, parse_corpus
from fope_lab.data.olmo_eval import GPT_NEOX, GPT_NEOX_VOCABULARY
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import (
    PREFIX,
    SYMBOLS,
    ByteTokenizer,
    SymbolTokenizer,
    has_chat_template,
    rounded_up,
)

SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>")
"""The tokens that have the first ids of every trained tokenizer."""
TRAINED_TOKENIZER_TYPES: NamedTypes[TrainedTokenizer] = NamedTypes("fope_lab.data.tokenizers")
"""Every way to train a tokenizer: a class in a file of this package."""


def _text_corpus(value: Any, base: Path) -> Corpus:
    corpus = parse_corpus(value, base)
    if corpus.kind != "text":
        raise DataError(f"found a corpus of {corpus.kind}, needs one of text")
    return corpus


@dataclass(frozen=True, kw_only=True)
class TrainedTokenizer(ABC):
    """A tokenizer that a stage trains on the documents of a corpus."""

    method: ClassVar[str]
    """The value of `train` in a sweep file."""

    vocabulary: Annotated[
        int, Interval(ge=256 + len(SPECIAL_TOKENS), le=1 << 20), Doc("The number of tokens.")
    ]
    corpus: Annotated[Corpus, Parsed(_text_corpus, corpus_json_schema)]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "method" in cls.__dict__:
            TRAINED_TOKENIZER_TYPES.register(cls.method, cls)

    def canonical(self) -> dict[str, Any]:
        """The shortest description; parsing it gives the tokenizer back."""
        return {"train": self.method, **given_options(self)}

    def identity(self, corpus: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the tokenizer follows from, as JSON; `corpus` is its corpus's identity, read if not
        given."""
        return {**self.canonical(), "corpus": corpus or self.corpus.identity()}

    @abstractmethod
    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Train on the corpus's training split and write the tokenizer.json to `path`. Training
        again gives the same bytes. `progress(documents)` is called after each document. Raises
        DataError if the corpus has no document."""


PIECE = 1 << 16
"""The number of characters passed to the trainer at once, since a document may be a whole book."""


@dataclass(frozen=True, kw_only=True)
class ByteLevelBPE(TrainedTokenizer):
    """A tokenizer that is trained on a corpus: byte-level BPE, which can write any text."""

    method = "bpe"

    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Train and write; memory grows with the number of different words."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        documents = 0

        def pieces() -> Iterator[str]:
            nonlocal documents
            for text in self.corpus.documents("train"):
                documents += 1
                for start in range(0, len(text), PIECE):
                    yield str(text[start : start + PIECE])
                progress(documents)

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(pieces(), trainer)
        if not documents:
            raise DataError(
                f"the train split of the corpus ({in_few_words(self.corpus.canonical())}) has no"
                " document"
            )
        tokenizer.save(str(path))


UNKNOWN = "<|unknown|>"
"""The token of every character that the corpus does not have."""


@dataclass(frozen=True, kw_only=True)
class Characters(TrainedTokenizer):
    """A tokenizer with a token for each character that the corpus has, held-out part included."""

    method = "characters"

    vocabulary: Annotated[
        int,
        Interval(ge=len(SPECIAL_TOKENS) + 2, le=1 << 20),
        Doc("The most tokens: the characters, end of text, padding, and one for any other."),
    ]

    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Write the tokenizer, its ids in the order of the characters' code points. Raises
        DataError also if the corpus has more characters than the vocabulary has room for."""
        from tokenizers import Tokenizer, decoders, models

        found: set[str] = set()
        documents = 0
        for split in ("train", "validation"):
            for text in self.corpus.documents(split):
                documents += 1
                found.update(str(text))
                progress(documents)
        named = in_few_words(self.corpus.canonical())
        if not found:
            raise DataError(f"the corpus ({named}) has no character")
        special = [*SPECIAL_TOKENS, UNKNOWN]
        tokens = [*special, *sorted(found)]
        if len(tokens) > self.vocabulary:
            message = (
                f"found {self.vocabulary}, but the corpus ({named}) has {len(found)} characters"
            )
            needs = f"at least {len(tokens)}, of which {len(special)} are special tokens"
            raise DataError(Problem(("vocabulary",), message, needs))
        ids = {token: number for number, token in enumerate(tokens)}
        # Without merges each character of a text is a token of its own.
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token=UNKNOWN))
        tokenizer.add_special_tokens(special)
        tokenizer.decoder = decoders.Fuse()
        tokenizer.save(str(path))


TRAINED_TOKENIZERS: Registry[TrainedTokenizer] = Registry(
    "trained tokenizer", TRAINED_TOKENIZER_TYPES, key="train", error=DataError
)
"""Every way to train a tokenizer, by the value of `train`."""
TokenizerRecipe = str | TrainedTokenizer
VOCABULARIES = {
    "byte": ByteTokenizer.vocabulary_size,
    **{name: SymbolTokenizer(name).vocabulary_size for name in SYMBOLS},
    GPT_NEOX: GPT_NEOX_VOCABULARY,
}


def parse_tokenizer(value: Any, base: Path) -> TokenizerRecipe:
    """The tokenizer that a description stands for; `base` is as in parse_corpus. A path is made
    absolute, so that it means the same in every process. Raises DataError holding every problem
    found."""
    if isinstance(value, Mapping):
        return TRAINED_TOKENIZERS.parse(value, base)
    if not isinstance(value, str) or not value:
        needs = "a tokenizer's name or path, or a mapping with train, vocabulary and corpus"
        raise DataError(Problem((), f"found {shown(value)}", needs))
    if value.startswith(PREFIX) and value not in SYMBOLS:
        raise DataError(unknown_name((), "tokenizer", value, SYMBOLS))
    path = os.path.abspath(base / os.path.expanduser(value))
    return path if value not in VOCABULARIES and os.path.exists(path) else value


def tokenizer_json_schema() -> dict[str, Any]:
    named = {
        "type": "string",
        "description": "The tokenizer: byte, symbols:TASK, gpt-neox, a name on the hub, or a path.",
    }
    return {"anyOf": [named, *TRAINED_TOKENIZERS.json_schema()["anyOf"]]}


def known_vocabulary(tokenizer: TokenizerRecipe) -> int | None:
    """The vocabulary that a model needs, or None where the tokenizer must be loaded to tell."""
    if isinstance(tokenizer, TrainedTokenizer):
        return rounded_up(tokenizer.vocabulary)
    return VOCABULARIES.get(tokenizer)


def may_have_prefix(tokenizer: TokenizerRecipe) -> bool:
    """Whether it may put tokens before a text: ours do not, and others say it once loaded."""
    return isinstance(tokenizer, str) and tokenizer not in VOCABULARIES


def may_write_chats(tokenizer: TokenizerRecipe) -> bool:
    """Whether it has a chat template, as far as can be told without loading it."""
    named = isinstance(tokenizer, str) and tokenizer not in VOCABULARIES
    return named and has_chat_template(str(tokenizer))
