"""One interface for all tokenizers: the byte tokenizer, symbols, and those of Hugging Face."""

from __future__ import annotations

import copy
import json
import os
import shutil
import string
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fope_lab.config.problems import unknown_name
from fope_lab.config.roles import TOKENIZER
from fope_lab.data.chat import Chat, Learnt, encode_by_template, write_chat
from fope_lab.data.corpora.base import sha256_of
from fope_lab.data.corpora.files import file_sha256
from fope_lab.data.olmo_eval import COMMAND, GPT_NEOX, GPT_NEOX_FILE
from fope_lab.data.problems import DataError

END_OF_TEXT = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]")
"""Names of the end-of-text token, tried in order where a tokenizer.json does not declare one."""
PADDING = ("<|pad|>", "<|padding|>", "<pad>", "[PAD]")
"""Names of the padding token, tried in order where a tokenizer.json does not declare one."""
TOKENIZER_FILE = "tokenizer.json"
TEMPLATE, CONFIG = "chat_template.jinja", "tokenizer_config.json"
VOCABULARIES = (TOKENIZER_FILE, "tokenizer.model", "spiece.model", "vocab.json")
"""Files that a tokenizer can be loaded from."""
SUPPLEMENTS = ("merges.txt", "special_tokens_map.json", CONFIG, TEMPLATE)
"""Other files of a tokenizer, which only supplement these."""
BESIDE = "./tokenizer"
"""The place of a checkpoint's tokenizer, relative to the checkpoint's folder."""
PREFIX = "symbols:"
"""The beginning of the names of tokenizers of symbols."""
BITS = ("0", "1")
NUMBERS = tuple(str(number) for number in range(150))
SYMBOLS: Mapping[str, tuple[str, ...]] = {
    f"{PREFIX}{task}": symbols
    for task, symbols in {
        "addition": (*BITS, "+", "="),
        "bin_majority": BITS,
        "bin_majority_interleave": BITS,
        "majority": tuple(string.ascii_lowercase),
        "parity": (*BITS, "e", "o"),
        "repeat_copy": ("a", "b"),
        "sort": NUMBERS,
        "unique_copy": NUMBERS,
    }.items()
}
"""The symbols of each tokenizer by its name; the id of a symbol is its place."""
SPECIAL_SYMBOLS = ("<bos>", "<sep>", "<eos>", "<pad>")
"""The beginning, the separator of input and answer, the end, and padding: their ids follow those of
the symbols, in this order."""


Prefix = Literal["tokenizer", "none"]
"""What stands before every text: the tokens that the tokenizer puts there, or none."""


class Tokenizer(ABC):
    """Maps text to token ids and back.

    `tokens` is the number of tokens. `vocabulary_size` is the size that a model needs: every id is
    below it, and it is rounded up to make matrix sizes efficient. `prefix_ids` are the ids that a
    pretrained model expects before every text (a beginning-of-text token, or usually nothing).
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
    def decode(self, ids: Sequence[int]) -> str: ...
    def text_bytes(self, ids: Sequence[int]) -> int:
        """The size of the ids' text in bytes of UTF-8; special tokens have none."""
        return len(self.decode(ids).encode())

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """All that determines the ids, as JSON."""

    @abstractmethod
    def vocabulary(self) -> dict[str, int]:
        """The id of each token that has a name."""

    def begun_by(self, prefix: Prefix) -> Tokenizer:
        """This tokenizer, or with "none" a copy that puts nothing before texts."""
        if prefix == "tokenizer" or not self.prefix_ids:
            return self
        bare = copy.copy(self)
        bare.prefix_ids = ()
        return bare

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_chats(self, chats: Sequence[Chat]) -> list[Learnt]:
        """Encode chats with the tokenizer's own template, and mark the assistant's tokens. Raises
        DataError if the tokenizer has no chat template."""
        raise DataError(f"the tokenizer {self.identity()['tokenizer']} has no chat template")

    def write_chat(self, chat: Chat, begin_answer: bool) -> str:
        """A chat as text, with `begin_answer` up to where the assistant's answer begins. Raises
        DataError if the tokenizer has no chat template."""
        raise DataError(f"the tokenizer {self.identity()['tokenizer']} has no chat template")

    @abstractmethod
    def save(self, checkpoint: Path) -> str:
        """Copy the tokenizer's files, if any, into a checkpoint's folder; returns its name
        there."""


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8 text, then end of text (256), padding (257) and beginning of text
    (258)."""

    tokens = 259
    vocabulary_size = 272
    eos_id = 256
    pad_id = 257
    bos_id = 258

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def text_bytes(self, ids: Sequence[int]) -> int:
        return sum(i < 256 for i in ids)

    def vocabulary(self) -> dict[str, int]:
        return {f"<0x{value:02X}>": value for value in range(256)}

    def identity(self) -> dict[str, Any]:
        return {"tokenizer": "byte"}

    def save(self, checkpoint: Path) -> str:
        return "byte"


class SymbolTokenizer(Tokenizer):
    """Symbols that stand between spaces, by one of the names in `SYMBOLS`.

    The vocabulary is not rounded up: models have a logit for each symbol and special token, and for
    nothing else.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.symbols = SYMBOLS[name]
        names = (*self.symbols, *SPECIAL_SYMBOLS)
        self._ids = {symbol: number for number, symbol in enumerate(names)}
        self.tokens = self.vocabulary_size = len(names)
        self.bos_id, self.sep_id, self.eos_id, self.pad_id = range(len(self.symbols), self.tokens)

    def encode(self, text: str) -> list[int]:
        unknown = [symbol for symbol in text.split() if symbol not in self.symbols]
        if unknown:
            raise DataError(
                f"the tokenizer {self.name} has no symbol {unknown[0]!r}; it has"
                f" {' '.join(self.symbols)}"
            )
        return [self._ids[symbol] for symbol in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.symbols[i] for i in ids if i < len(self.symbols))

    def vocabulary(self) -> dict[str, int]:
        return dict(self._ids)

    def identity(self) -> dict[str, Any]:
        return {"tokenizer": self.name, "symbols": list(self.symbols)}

    def save(self, checkpoint: Path) -> str:
        return self.name


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of transformers. The vocabulary size is rounded up to a multiple of 128, which
    turns GPT-NeoX's 50,277 into the 50,304 of the FoPE paper."""

    def __init__(self, tokenizer: Any, identity: dict[str, Any], name: str) -> None:
        self._tokenizer = tokenizer
        self._identity = identity
        self._name = name
        self.tokens = len(tokenizer)
        self.vocabulary_size = rounded_up(self.tokens)
        eos = _id_of(tokenizer, tokenizer.eos_token_id, END_OF_TEXT)
        if eos is None:
            raise DataError(
                f"tokenizer {identity} declares no end-of-text token, "
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
        # verbose=False suppresses the warning about documents longer than the model's context.
        ids: list[list[int]] = self._tokenizer(
            list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False
        )["input_ids"]
        return ids

    def encode_chats(self, chats: Sequence[Chat]) -> list[Learnt]:
        return encode_by_template(self._tokenizer, self.encode_batch, chats)

    def write_chat(self, chat: Chat, begin_answer: bool) -> str:
        options = {"tokenize": False, "add_generation_prompt": begin_answer}
        return str(write_chat(self._tokenizer, chat, **options))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def text_bytes(self, ids: Sequence[int]) -> int:
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return len(text.encode())

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
    """Round up to a multiple of 128, an efficient size for matrices."""
    return -(-tokens // 128) * 128


def beside(checkpoint: Path, name: str) -> str:
    """A checkpoint's name for its tokenizer; a path below its folder becomes absolute."""
    return os.path.abspath(checkpoint / name) if name.startswith(BESIDE) else name


def is_built_in(name: Any) -> bool:
    """Whether a tokenizer is part of fope-lab: `byte`, or symbols."""
    return name == "byte" or name in SYMBOLS


def built_in(name: str) -> ByteTokenizer | SymbolTokenizer:
    return ByteTokenizer() if name == "byte" else SymbolTokenizer(name)


def tokenizer_identity(name: str) -> dict[str, Any]:
    """All that determines a tokenizer's ids, without loading or downloading it: the content of
    local files, or name and revision on the hub. Raises DataError if a path does not exist."""
    if is_built_in(name):
        return built_in(name).identity()
    path = _local_path(name)
    if path is None:
        repository, revision = _on_hub(name)
        return {"tokenizer": repository, "revision": revision}
    digests = (part.encode() for file in _files_of(path) for part in (file.name, file_sha256(file)))
    return {"tokenizer": "local", "sha256": sha256_of(digests)}


def known_size(name: str) -> int | None:
    """How many ids a tokenizer has, as far as can be told without loading it."""
    if is_built_in(name):
        return built_in(name).tokens
    try:
        path = _local_path(name)
        file = path / TOKENIZER_FILE if path is not None and path.is_dir() else path
        content = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        added = [token["id"] for token in content.get("added_tokens", ())]
        vocabulary = content["model"]["vocab"]
        own = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        return 1 + max([*added, *own])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def has_chat_template(name: str) -> bool:
    """Whether a tokenizer has a chat template; on the hub, or if it is not there, which is another
    problem, assume that it has."""
    try:
        path = _local_path(name)
    except DataError:
        return True
    if path is None or not path.is_dir():
        return path is None
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    return "chat_template" in config or (path / TEMPLATE).exists()


def load_for_stage(name: Any, parents: Mapping[str, Path]) -> Tokenizer:
    """The tokenizer of a stage: its parent's "tokenizer", or else the one it names. Raises
    DataError."""
    return load_tokenizer(
        str(parents[TOKENIZER] / TOKENIZER_FILE) if TOKENIZER in parents else name
    )


def load_tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer: `byte`, `symbols:TASK`, a name on the Hugging Face hub, which
    `NAME@REVISION` pins, a folder, or the path of a tokenizer.json. Raises DataError if there is no
    such tokenizer."""
    if is_built_in(name):
        return built_in(name)
    if name.startswith(PREFIX):
        raise DataError(unknown_name((), "tokenizer", name, SYMBOLS))
    if name == GPT_NEOX:
        raise DataError(
            f"{GPT_NEOX} is a name for sweep files; elsewhere, give the path of its file: "
            f"{GPT_NEOX_FILE}, from `{COMMAND}`"
        )
    identity = tokenizer_identity(name)
    path = _local_path(name)
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if path is not None and path.is_file():
        try:
            loaded = PreTrainedTokenizerFast(tokenizer_file=str(path))
        except Exception as error:  # tokenizers, written in Rust, raises no other type
            raise DataError(f"{path} is not a tokenizer.json: {error}") from error
        return HuggingFaceTokenizer(loaded, identity, name)
    repository, revision = _on_hub(name) if path is None else (str(path), None)
    try:
        # trust_remote_code is explicit because transformers otherwise asks on the terminal where a
        # folder contains code, such as a model that `fope-lab export` wrote.
        loaded = AutoTokenizer.from_pretrained(
            repository, revision=revision, trust_remote_code=False
        )
    except Exception as error:  # it reads a model's config.json, too, and raises what that raises
        raise DataError(
            f"no tokenizer {name!r}: {error} "
            "(allowed: byte, a name on the Hugging Face hub, a folder, a tokenizer.json)"
        ) from error
    return HuggingFaceTokenizer(loaded, identity, name)


def as_tokenizer(tokenizer: Any) -> Tokenizer:
    """One of fope-lab's tokenizers as it is, or one of transformers, wrapped."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    content = str(sorted(tokenizer.get_vocab().items())).encode()
    identity = {"tokenizer": "object", "sha256": sha256_of([content])}
    return HuggingFaceTokenizer(tokenizer, identity, tokenizer.name_or_path)


def _id_of(tokenizer: Any, given: int | None, names: Sequence[str]) -> int | None:
    """A special token's id: as declared, or that of the first name in the vocabulary."""
    vocabulary = tokenizer.get_vocab()
    known = (vocabulary[name] for name in names if name in vocabulary)
    return given if given is not None else next(known, None)


def _files_of(path: Path) -> list[Path]:
    """The files of a tokenizer's path or folder. Raises DataError if a folder has none."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if file.name in VOCABULARIES + SUPPLEMENTS]
    if not files:
        raise DataError(no_tokenizer(path))
    return files


def no_tokenizer(folder: Path) -> str:
    return f"the folder {folder} has no tokenizer (allowed: one of {', '.join(VOCABULARIES)})"


def _on_hub(name: str) -> tuple[str, str | None]:
    """The repository of a tokenizer on the hub, and its revision if the name has one."""
    repository, _, revision = name.partition("@")
    return repository, revision or None


def _local_path(name: str) -> Path | None:
    """The path that a tokenizer's name stands for, or None for a name on the hub."""
    path = Path(name).expanduser().absolute()
    if path.exists():
        return path
    if name.startswith(("/", ".", "~")) or name.endswith(".json") or name.count(os.sep) > 1:
        raise DataError(f"no tokenizer: {path} does not exist")
    return None
