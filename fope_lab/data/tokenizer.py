"""Tokenizers behind one interface: bytes, or any of Hugging Face."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fope_lab.data.base import sha256_of
from fope_lab.data.local_corpora import file_sha256
from fope_lab.data.problems import DataError

END_OF_TEXT = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
"""What the end-of-text token is called, for a tokenizer.json that does not say which it is."""


class Tokenizer(ABC):
    """Text to token ids and back.

    `vocabulary_size` is what a model trained on it needs: every id is below it, and it is rounded
    up so that matrix sizes are round. `prefix_ids` are what a pretrained model expects before every
    text (a BOS token, usually nothing).
    """

    vocabulary_size: int
    eos_id: int
    pad_id: int
    prefix_ids: tuple[int, ...] = ()

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence of ids."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the ids follow from, as JSON."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts."""
        return [self.encode(text) for text in texts]


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8 text, then end of text 256, padding 257, beginning of text 258."""

    vocabulary_size = 272
    eos_id = 256
    pad_id = 257
    bos_id = 258

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def identity(self) -> dict[str, Any]:
        return {"tokenizer": "byte"}


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of transformers; the vocabulary is rounded up to a multiple of 128, which makes
    GPT-NeoX's 50,277 the 50,304 of the FoPE paper."""

    def __init__(self, tokenizer: Any, identity: dict[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._identity = identity
        self.vocabulary_size = -(-len(tokenizer) // 128) * 128
        eos = tokenizer.eos_token_id
        if eos is None:
            named = [tokenizer.get_vocab().get(name) for name in END_OF_TEXT]
            eos = next((found for found in named if found is not None), None)
        if eos is None:
            raise DataError(
                f"tokenizer {identity} names no end-of-text token, "
                f"and none of {', '.join(END_OF_TEXT)} is in its vocabulary"
            )
        self.eos_id = int(eos)
        pad = tokenizer.pad_token_id
        self.pad_id = self.eos_id if pad is None else int(pad)
        with_specials = tokenizer.encode("a", add_special_tokens=True)
        without = tokenizer.encode("a", add_special_tokens=False)
        if with_specials[-len(without) :] == without:
            self.prefix_ids = tuple(with_specials[: -len(without)])

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        # verbose=False: a document may be longer than any context.
        ids: list[list[int]] = self._tokenizer(
            list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False
        )["input_ids"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def identity(self) -> dict[str, Any]:
        return self._identity


def tokenizer_identity(name: str) -> dict[str, Any]:
    """What the ids of a tokenizer follow from, without loading or downloading it.

    Content of local files, name and revision on the hub. Raises DataError if a path is not there.
    """
    if name == "byte":
        return ByteTokenizer().identity()
    path = _local_path(name)
    if path is None:
        repository, _, revision = name.partition("@")
        return {"tokenizer": repository, "revision": revision or None}
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if file.name in _TOKENIZER_FILES]
    if not files:
        raise DataError(f"the folder {path} has no tokenizer ({', '.join(_TOKENIZER_FILES)})")
    digests = (part.encode() for file in files for part in (file.name, file_sha256(file)))
    return {"tokenizer": "local", "sha256": sha256_of(digests)}


def load_tokenizer(name: str) -> Tokenizer:
    """`byte`, a name on the Hugging Face hub (`NAME@REVISION` pins it), a folder, or the path of a
    tokenizer.json. Raises DataError if there is no such tokenizer."""
    if name == "byte":
        return ByteTokenizer()
    identity = tokenizer_identity(name)
    path = _local_path(name)
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if path is not None and path.is_file():
        return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_file=str(path)), identity)
    repository, _, revision = name.partition("@")
    try:
        loaded = (
            AutoTokenizer.from_pretrained(repository, revision=revision or None)
            if path is None
            else AutoTokenizer.from_pretrained(path)
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f"no tokenizer {name!r}: {error} "
            "(allowed: byte, a name on the Hugging Face hub, a folder, a tokenizer.json)"
        ) from error
    return HuggingFaceTokenizer(loaded, identity)


def as_tokenizer(tokenizer: Any) -> Tokenizer:
    """A tokenizer of ours as it is; one of transformers behind our interface."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    content = str(sorted(tokenizer.get_vocab().items())).encode()
    return HuggingFaceTokenizer(tokenizer, {"tokenizer": "object", "sha256": sha256_of([content])})


_TOKENIZER_FILES = (
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


def _local_path(name: str) -> Path | None:
    """The path that a tokenizer's name is, or None for a name on the hub."""
    path = Path(name).expanduser().absolute()
    if path.exists():
        return path
    if name.startswith(("/", ".", "~")) or name.endswith(".json") or name.count(os.sep) > 1:
        raise DataError(f"no tokenizer: {path} does not exist")
    return None
