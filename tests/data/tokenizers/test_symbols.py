"""Tokenizers of symbols: a text and its ids, the special tokens, and the export to transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import known_vocabulary, parse_tokenizer
from fope_lab.data.tokenizers.tokenizer import (
    SYMBOLS,
    SymbolTokenizer,
    load_tokenizer,
    tokenizer_identity,
)
from fope_lab.model.export.tokenizer import as_huggingface

SIZES = {"addition": 8, "bin_majority": 6, "majority": 30, "parity": 8, "unique_copy": 154}
"""The published vocabularies, with <bos>, <sep>, <eos> and <pad>."""


@given(name=st.sampled_from(sorted(SYMBOLS)), data=st.data())
def test_symbols_have_the_ids_of_their_places(name: str, data: st.DataObject) -> None:
    tokenizer = SymbolTokenizer(name)
    ids = data.draw(st.lists(st.integers(0, len(SYMBOLS[name]) - 1)))
    text = " ".join(SYMBOLS[name][i] for i in ids)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == tokenizer.decode([*ids, tokenizer.eos_id]) == text


@pytest.mark.parametrize("task", SIZES)
def test_a_model_needs_a_logit_for_each_symbol_and_special_token(task: str) -> None:
    name = f"symbols:{task}"
    tokenizer = SymbolTokenizer(name)
    assert known_vocabulary(name) == tokenizer.vocabulary_size == tokenizer.tokens == SIZES[task]
    assert sorted(tokenizer.vocabulary().values()) == list(range(SIZES[task]))
    special = [tokenizer.bos_id, tokenizer.sep_id, tokenizer.eos_id, tokenizer.pad_id]
    assert special == list(range(SIZES[task] - 4, SIZES[task]))
    assert tokenizer_identity(name) == tokenizer.identity()
    assert parse_tokenizer(name, Path()) == name


@pytest.mark.parametrize("name", SYMBOLS)
def test_transformers_reads_the_same_ids(name: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(name)
    as_huggingface(name, tokenizer).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    assert loaded.get_vocab() == tokenizer.vocabulary()
    text = " ".join(SYMBOLS[name])
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.encode(f"<bos> {text} <sep>")[0] == loaded.bos_token_id
    assert (loaded.eos_token_id, loaded.pad_token_id) == (tokenizer.eos_id, tokenizer.pad_id)
    assert loaded.sep_token == "<sep>"
    with pytest.raises(Exception, match=r"\[?UNK\]?|unk"):
        loaded.encode("word")


def test_unknown_symbols_and_unknown_tokenizers() -> None:
    with pytest.raises(DataError, match="symbols:parity has no symbol '2'; it has 0 1 e o"):
        load_tokenizer("symbols:parity").encode("0 1 2")
    for load in (load_tokenizer, lambda name: parse_tokenizer(name, Path())):
        with pytest.raises(DataError, match="did you mean 'symbols:parity'"):
            load("symbols:party")
