"""The base class of corpora: a frozen dataclass of options with an identity and its documents.

A corpus of text yields strings, one of tokens pieces of their ids, one of supervised pairs (prompt,
answer), and one of chats lists of messages. Defining a subclass registers it under its `name`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from numpy.typing import NDArray

from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.data.chat import Chat
from fope_lab.data.problems import DataError

Split = Literal["train", "validation"]
Pair = tuple[str, str]
Kind = Literal["text", "tokens", "pairs", "chats"]
T = TypeVar("T")

HELD_OUT = 10
"""One part in this many is held out for validation if a corpus has no validation split."""
TAIL = (0.8, 0.9)
"""A document is cut at the break nearest to the second fraction of its length, but not before the
first fraction."""
BREAKS = {"paragraph": "\n\n", "line": "\n", "word": " "}
"""What stands between the parts that a text may be cut into, the largest first."""
TENTHS = f"every {HELD_OUT}th document"
ENDS = "the end of each document, cut where a paragraph ends"
"""What is held out, in words."""
EXACT = "exact"
"""The cut of a text after nine tenths of its characters, wherever that is."""


class TokenPiece(NamedTuple):
    """Token ids (tokens,) in the order of their text, with their place in words. A `whole` piece is
    one document; of others, a document may go on in the next piece, unless that `begins` one."""

    where: str
    ids: NDArray[Any]
    whole: bool = False
    begins: bool = False

    def check(self, limit: int | None) -> None:
        """Raise DataError for an id below 0, or not below `limit`, if that is known."""
        wrong = self.ids < 0 if limit is None else (self.ids < 0) | (self.ids >= limit)
        if wrong.any():
            has = "" if limit is None else f", but the tokenizer has the ids 0 to {limit - 1:,}"
            raise DataError(f"{self.where}: found the id {int(self.ids[wrong.argmax()]):,}{has}")


Documents = Iterator[str] | Iterator[TokenPiece] | Iterator[Pair] | Iterator[Chat]

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

    def check(self) -> None:  # noqa: B027 - most corpora are checked where they are read
        """Raise DataError if a look at the local files of a resolved corpus shows that they can't
        be read."""

    def held_out(self) -> str:
        """What the validation split is, in words."""
        return TENTHS

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """All that determines the documents, as JSON: content hashes of local files, or name and
        pinned revision on the hub. Needs no download, and is the same on every machine."""

    @abstractmethod
    def documents(self, split: Split) -> Documents:
        """Yield the documents of a split in a fixed order, in bounded memory. Raises DataError if
        they can't be read."""


def split_text(text: str, cut: str = "paragraph") -> tuple[str, str]:
    """Split a document into (train, validation): the last tenth or so, cut between two paragraphs,
    lines or words, or exactly. Without such a break in its last fifth, it is all for training."""
    start, aim = (int(len(text) * fraction) for fraction in TAIL)
    if cut == EXACT:
        return text[:aim], text[aim:]
    mark = BREAKS[cut]
    before = text.rfind(mark, start, aim + len(mark))
    after = text.find(mark, aim)
    ends = [end + len(mark) for end in (before, after) if end >= 0]
    ends = [end for end in ends if text[end:].strip()]
    if not ends:
        return text, ""
    end = min(ends, key=lambda end: abs(end - aim))
    return text[:end], text[end:]


def split_texts(texts: Iterable[str], split: Split, cut: str = "paragraph") -> Iterator[str]:
    """The part of each text that belongs to a split, unless it is empty."""
    for text in texts:
        train, validation = split_text(text, cut)
        if part := train if split == "train" else validation:
            yield part


def best_cut(texts: Iterable[str]) -> str:
    """The largest break that leaves at least one of the texts a held-out part."""
    kinds, best = [*BREAKS, EXACT], len(BREAKS)
    for text in texts:
        best = next((i for i in range(best) if split_text(text, kinds[i])[1]), best)
        if best == 0:
            break
    return kinds[best]


def split_items(items: Iterable[T], split: Split) -> Iterator[T]:
    """The items of a split: every tenth is for validation, the others for training."""
    for index, item in enumerate(items):
        if (index % HELD_OUT == HELD_OUT - 1) == (split == "validation"):
            yield item


def split_documents(items: Iterable[T], split: Split) -> Iterator[T]:
    """The items of a split, as by `split_items`; of fewer than ten, the last is for validation."""
    rest = iter(items)
    first = list(islice(rest, HELD_OUT))
    if len(first) < HELD_OUT:
        return iter(first[-1:] if split == "validation" else first[:-1])
    return split_items(chain(first, rest), split)


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
