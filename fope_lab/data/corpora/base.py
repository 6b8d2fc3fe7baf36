"""What a corpus is: options in a frozen dataclass, an identity, and an iterator of documents.

A corpus of text yields strings, one of supervised pairs (prompt, answer), one of chats lists of
messages. Defining a subclass registers it under its `name`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from fope_lab.data.chat import Chat
from fope_lab.data.options import set_options

Split = Literal["train", "validation"]
Pair = tuple[str, str]
Kind = Literal["text", "pairs", "chats"]
T = TypeVar("T")

HELD_OUT = 10
"""One part in this many is held out for validation where a corpus has no such split itself."""
TAIL = (0.8, 0.9)
"""A document is cut at the paragraph nearest to the second fraction, not before the first."""


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """A source of documents."""

    name: ClassVar[str]
    """What a description calls it: its `type`."""
    kind: ClassVar[Kind] = "text"
    shorthand: ClassVar[str | None] = None
    """An option that, where a description has no `type`, says that this type is meant."""
    types: ClassVar[dict[str, type[Corpus]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            Corpus.types[cls.name] = cls

    def resolved(self, base: Path) -> Self:
        """Itself with absolute paths; `base` is the folder that relative ones start from.

        Raises DataError if something is not there.
        """
        return self

    def canonical(self) -> dict[str, Any]:
        """The shortest description of the corpus, with absolute paths; parsing it gives it back."""
        return {"type": self.name, **set_options(self)}

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the documents follow from, as JSON: content hashes of what is local, name and pinned
        revision of what is not; known without a download, the same on every machine."""

    @abstractmethod
    def documents(self, split: Split) -> Iterator[str] | Iterator[Pair] | Iterator[Chat]:
        """The documents of a split in a fixed order, in bounded memory. Raises CorpusError."""


def split_text(text: str) -> tuple[str, str]:
    """A document's (train, validation) parts: the last tenth, cut between two paragraphs.

    All of a document without a paragraph's end in its last fifth is for training.
    """
    start, aim = (int(len(text) * fraction) for fraction in TAIL)
    before = text.rfind("\n\n", start, aim + 2)
    after = text.find("\n\n", aim)
    ends = [end + 2 for end in (before, after) if end >= 0 and text[end + 2 :].strip()]
    if not ends:
        return text, ""
    cut = min(ends, key=lambda end: abs(end - aim))
    return text[:cut], text[cut:]


def split_items(items: Iterable[T], split: Split) -> Iterator[T]:
    """Every tenth item is for validation, the others are for training."""
    for index, item in enumerate(items):
        if (index % HELD_OUT == HELD_OUT - 1) == (split == "validation"):
            yield item


def at_most(items: Iterable[T], limit: int | None) -> Iterator[T]:
    """The first `limit` items, or all."""
    return islice(items, limit)


def sha256_of(parts: Iterable[bytes]) -> str:
    """Hex SHA-256 of a sequence of byte strings; where one ends and the next begins counts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
