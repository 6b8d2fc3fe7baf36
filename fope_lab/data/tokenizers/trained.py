"""The base class of tokenizers that a stage of the sweep trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import Parsed
from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.registry import corpus_json_schema, parse_corpus
from fope_lab.data.problems import DataError

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
        """What the tokenizer follows from, as JSON; `corpus` is the identity of its corpus, which
        is read if it is not given."""
        return {**self.canonical(), "corpus": corpus or self.corpus.identity()}

    @abstractmethod
    def write(self, path: Path, progress: Callable[[int], None] = lambda documents: None) -> None:
        """Train on the corpus's training split and write the tokenizer.json to `path`.

        Training again gives the same bytes. `progress(documents)` is called after each document.
        Raises DataError if the corpus has no document.
        """
