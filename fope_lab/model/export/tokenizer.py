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


def write_tokenizer(folder: Path, name: str, tokenizer: Tokenizer) -> None:
    """Write the files of `tokenizer` to `folder`; `name` is as in `load_tokenizer`."""
    huggingface_tokenizer(name, tokenizer).save_pretrained(folder)


def huggingface_tokenizer(name: str, tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    """Return the tokenizer of transformers with the ids and the special tokens of `tokenizer`."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if isinstance(tokenizer, ByteTokenizer):
        return byte_tokenizer()
    if isinstance(tokenizer, SymbolTokenizer):
        return symbol_tokenizer(tokenizer)
    if Path(name).is_file():
        loaded = PreTrainedTokenizerFast(tokenizer_file=name)
        eos, pad = loaded.convert_ids_to_tokens([tokenizer.eos_id, tokenizer.pad_id])
        loaded.add_special_tokens({"eos_token": eos, "pad_token": pad})
        return loaded
    repository, _, revision = (name, "", "") if Path(name).is_dir() else name.partition("@")
    return AutoTokenizer.from_pretrained(repository, revision=revision or None)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return the byte tokenizer as one of transformers: the id of a byte is its value.

    It is a byte-level BPE without merges. Text that spells the name of a special token is encoded
    as the bytes that it is (`split_special_tokens`), as in ByteTokenizer.
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


def symbol_tokenizer(tokenizer: SymbolTokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer of symbols as one of transformers: text is cut at its spaces.

    The separator of input and answer is the special token `sep_token`. An unknown symbol is an
    error, since there is no token for it.
    """
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
    """Return the character that stands for each byte in byte-level vocabularies (GPT-2's mapping).

    A byte that is a visible Latin-1 character stands for itself, and the others, in order, are the
    characters from U+0100 on.
    """
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
