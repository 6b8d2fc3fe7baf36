"""The tokenizer of an export, in the files that Hugging Face's AutoTokenizer loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.data.tokenizers.tokenizer import (
    SPECIAL_SYMBOLS,
    ByteTokenizer,
    SymbolTokenizer,
    Tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

END_OF_TEXT, PADDING, BEGINNING_OF_TEXT = "<|endoftext|>", "<|pad|>", "<|beginoftext|>"
"""The names, in an export, of the special tokens of the byte tokenizer."""


def as_huggingface(name: str, tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    """Return the tokenizer of transformers with the ids and the special tokens of `tokenizer`,
    whose `name` is as in `load_tokenizer`."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if isinstance(tokenizer, ByteTokenizer):
        return _of_bytes()
    if isinstance(tokenizer, SymbolTokenizer):
        return _of_symbols(tokenizer)
    if Path(name).is_file():
        loaded = PreTrainedTokenizerFast(tokenizer_file=name)
        eos, pad = loaded.convert_ids_to_tokens([tokenizer.eos_id, tokenizer.pad_id])
        loaded.add_special_tokens({"eos_token": eos, "pad_token": pad})
        return loaded
    repository, _, revision = (name, "", "") if Path(name).is_dir() else name.partition("@")
    return AutoTokenizer.from_pretrained(repository, revision=revision or None)


def _of_bytes() -> PreTrainedTokenizerFast:
    """A byte-level BPE without merges, in which the id of a byte is its value.

    Text that spells a special token is encoded as bytes (`split_special_tokens`).
    """
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    ids = {character: value for value, character in enumerate(byte_characters())}
    backend = Backend(models.BPE(vocab=ids, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    specials = {
        ByteTokenizer.eos_id: END_OF_TEXT,
        ByteTokenizer.pad_id: PADDING,
        ByteTokenizer.bos_id: BEGINNING_OF_TEXT,
    }
    # In the order of their ids, which are those that follow the vocabulary.
    backend.add_special_tokens(
        [AddedToken(name, normalized=False) for _, name in sorted(specials.items())]
    )
    assert all(backend.token_to_id(name) == number for number, name in specials.items())
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END_OF_TEXT,
        pad_token=PADDING,
        bos_token=BEGINNING_OF_TEXT,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def _of_symbols(tokenizer: SymbolTokenizer) -> PreTrainedTokenizerFast:
    """Text is cut at its spaces; an unknown symbol is an error, since it has no token."""
    from tokenizers import AddedToken, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    backend = Backend(models.WordLevel(tokenizer.vocabulary()))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in SPECIAL_SYMBOLS])
    bos, sep, eos, pad = SPECIAL_SYMBOLS
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        sep_token=sep,
        eos_token=eos,
        pad_token=pad,
        clean_up_tokenization_spaces=False,
    )


def byte_characters() -> list[str]:
    """Return the character of each byte in byte-level vocabularies (GPT-2's): itself if it is
    visible in Latin-1, or else the next one from U+0100 on."""
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
