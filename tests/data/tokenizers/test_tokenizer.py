"""Tokenizers: bytes, and those of Hugging Face behind the same interface."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import as_tokenizer, load_tokenizer, tokenizer_identity

TEXT = "The pass key is 12345. Remember it. The grass is green. The sky is blue."
MakeBpe = Callable[..., Any]


@given(st.text())
def test_bytes_give_the_text_back(text: str) -> None:
    tokenizer = load_tokenizer("byte")
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_byte_vocabulary_has_room_for_the_specials() -> None:
    tokenizer = load_tokenizer("byte")
    assert tokenizer.vocabulary_size == 272
    assert len({tokenizer.eos_id, tokenizer.pad_id, *range(256)}) == 258
    assert max(tokenizer.eos_id, tokenizer.pad_id) < tokenizer.tokens < tokenizer.vocabulary_size


def test_a_hugging_face_tokenizer_from_a_folder_a_file_or_itself(
    tmp_path: Path, make_bpe: MakeBpe
) -> None:
    bpe = make_bpe()
    bpe.save_pretrained(tmp_path)
    expected = bpe.encode(TEXT, add_special_tokens=False)
    loaded = [load_tokenizer(str(p)) for p in (tmp_path, tmp_path / "tokenizer.json")]
    for tokenizer in [*loaded, as_tokenizer(bpe)]:
        assert tokenizer.encode(TEXT) == expected
        assert tokenizer.encode_batch([TEXT, "", "sky"])[:2] == [expected, []]
        assert tokenizer.decode(expected) == TEXT
        assert tokenizer.eos_id == bpe.eos_token_id
        assert tokenizer.vocabulary_size % 128 == 0
        assert 0 <= tokenizer.vocabulary_size - len(bpe) < 128
        assert tokenizer.prefix_ids == ()
    assert as_tokenizer(loaded[0]) is loaded[0]


def test_what_a_model_expects_before_every_text_is_known_and_not_encoded(make_bpe: MakeBpe) -> None:
    tokenizer = as_tokenizer(make_bpe(bos=True))
    assert tokenizer.prefix_ids == (1,)
    assert 1 not in tokenizer.encode(TEXT)


def test_a_local_tokenizer_is_its_content(tmp_path: Path, make_bpe: MakeBpe) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path, merges in zip(paths, (10, 10, 20), strict=True):
        make_bpe(merges).save_pretrained(path)
    first, same, other = (tokenizer_identity(str(path)) for path in paths)
    assert first == same != other
    assert load_tokenizer(str(paths[0])).identity() == first


def test_a_hub_tokenizer_is_its_name_and_revision() -> None:
    assert tokenizer_identity("org/name@abc") == {"tokenizer": "org/name", "revision": "abc"}
    assert tokenizer_identity("gpt2") == {"tokenizer": "gpt2", "revision": None}


def test_a_tokenizer_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match=re.escape(f"{missing} does not exist")):
        load_tokenizer(missing)
    with pytest.raises(DataError, match="a name for sweep files; elsewhere, give the path of its"):
        load_tokenizer("gpt-neox")
    with pytest.raises(DataError, match="has no tokenizer"):
        load_tokenizer(str(tmp_path))
