"""The base class of corpora: a frozen dataclass of options with an identity and its documents.

A corpus of text yields strings, a corpus of supervised pairs yields (prompt, answer), and a corpus
of chats yields lists of messages. Defining a subclass registers it under its `name`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.data.chat import Chat

Split = Literal["train", "validation"]
Pair = tuple[str, str]
Kind = Literal["text", "pairs", "chats"]
T = TypeVar("T")

HELD_OUT = 10
"""One part in this many is held out for validation if a corpus has no validation split."""
TAIL = (0.8, 0.9)
"""A document is cut at the paragraph break nearest to the second fraction of its length, but not
before the first fraction."""


CORPUS_TYPES: NamedTypes[Corpus] = NamedTypes("fope_lab.data.corpora")
"""Every type of corpus: a class in a file of this package."""


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """A source of documents: its fields are its options in a sweep file."""

    name: ClassVar[str]
    """The `type` of the corpus in a sweep file."""
    kind: ClassVar[Kind] = "text"
    shorthand: ClassVar[str | None] = None
    """The option that selects this type in a description without `type`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            CORPUS_TYPES.register(cls.name, cls)

    def resolved(self, base: Path) -> Self:
        """The corpus with absolute paths; relative ones start from the folder `base`. Raises
        DataError if a file or folder does not exist."""
        return self

    def places(self) -> tuple[str, ...]:
        """The local files, patterns or folders that the corpus names, as they are given."""
        return ()

    def placed(self, base: Path, paths: Sequence[str]) -> dict[str, Any]:
        """The options that name the local files `paths`, or else the folder that has them; a
        relative folder starts from `base`."""
        return {}

    def local_files(self) -> list[str]:
        """The absolute paths of the local files that a resolved corpus reads. Raises DataError if
        they are not there."""
        return []

    def canonical(self) -> dict[str, Any]:
        """The shortest description, with absolute paths; parsing it gives the corpus."""
        return {"type": self.name, **given_options(self)}

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """All that determines the documents, as JSON: content hashes of local files, or name and
        pinned revision on the hub. Needs no download, and is the same on every machine."""

    @abstractmethod
    def documents(self, split: Split) -> Iterator[str] | Iterator[Pair] | Iterator[Chat]:
        """Yield the documents of a split in a fixed order, in bounded memory. Raises DataError if
        they can't be read."""


def split_text(text: str) -> tuple[str, str]:
    """Split a document into (train, validation): the last tenth or so, cut between two paragraphs.
    Without a paragraph break in its last fifth, all of it is for training."""
    start, aim = (int(len(text) * fraction) for fraction in TAIL)
    before = text.rfind("\n\n", start, aim + 2)
    after = text.find("\n\n", aim)
    ends = [end + 2 for end in (before, after) if end >= 0 and text[end + 2 :].strip()]
    if not ends:
        return text, ""
    cut = min(ends, key=lambda end: abs(end - aim))
    return text[:cut], text[cut:]


def split_texts(texts: Iterable[str], split: Split, *, exactly: bool = False) -> Iterator[str]:
    """The part of each text that belongs to a split, unless it is empty: cut between paragraphs, or
    `exactly` a tenth of its characters before its end."""
    for text in texts:
        cut = int(len(text) * (1 - 1 / HELD_OUT))
        train, validation = (text[:cut], text[cut:]) if exactly else split_text(text)
        if part := train if split == "train" else validation:
            yield part


def split_items(items: Iterable[T], split: Split) -> Iterator[T]:
    """The items of a split: every tenth is for validation, the others for training."""
    for index, item in enumerate(items):
        if (index % HELD_OUT == HELD_OUT - 1) == (split == "validation"):
            yield item


def characters(document: str | Pair | Chat) -> int:
    """The number of characters of a text, a pair or a chat."""
    if isinstance(document, str):
        return len(document)
    return sum(len(part if isinstance(part, str) else part["content"]) for part in document)


def sha256_of(parts: Iterable[bytes]) -> str:
    """The hex SHA-256 of a sequence of byte strings, including the borders between them."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
