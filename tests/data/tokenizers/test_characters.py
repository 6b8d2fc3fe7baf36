"""A token for each character: what a text becomes, and what the corpus decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import TrainedTokenizer, known_vocabulary, parse_tokenizer
from fope_lab.data.tokenizers.tokenizer import Tokenizer, load_tokenizer

TEXT = "To be, or not to be:\nthat is the question.\n" * 4 + "ü!"  # the last tenth has two alone
CHARACTERS = sorted(set(TEXT))


def recipe(folder: Path, vocabulary: int) -> TrainedTokenizer:
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    corpus = {"files": "text.txt", "cut": "exact"}
    given = {"train": "characters", "vocabulary": vocabulary, "corpus": corpus}
    found = parse_tokenizer(given, folder)
    assert isinstance(found, TrainedTokenizer)
    return found


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("characters")
    recipe(folder, 3 + len(CHARACTERS)).write(folder / "tokenizer.json")
    return load_tokenizer(str(folder / "tokenizer.json"))


def test_ids_are_in_the_order_of_the_characters_also_of_the_held_out_part(
    tokenizer: Tokenizer,
) -> None:
    assert (tokenizer.eos_id, tokenizer.pad_id, tokenizer.prefix_ids) == (0, 1, ())
    assert tokenizer.tokens == 3 + len(CHARACTERS)
    assert [tokenizer.encode(c) for c in CHARACTERS] == [[3 + i] for i in range(len(CHARACTERS))]


@settings(deadline=None)
@given(st.text(st.sampled_from(CHARACTERS)))
def test_a_text_of_its_characters_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == [3 + CHARACTERS.index(c) for c in text]
    assert tokenizer.decode(ids) == text


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_other_character_is_one_unknown_token(tokenizer: Tokenizer, text: str) -> None:
    expected = [3 + CHARACTERS.index(c) if c in CHARACTERS else 2 for c in text]
    assert tokenizer.encode(text) == expected


def test_the_same_corpus_gives_the_same_file(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        recipe(tmp_path, 100).write(tmp_path / "tokenizer.json")
        contents.append((tmp_path / "tokenizer.json").read_bytes())
    assert contents[0] == contents[1]
    assert known_vocabulary(recipe(tmp_path, 100)) == 128


def test_more_characters_than_tokens_are_an_error(tmp_path: Path) -> None:
    count = len(CHARACTERS)
    needs = f"vocabulary: found {count + 2}, .* {count} characters, needs at least {count + 3}"
    with pytest.raises(DataError, match=needs):
        recipe(tmp_path, count + 2).write(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match="vocabulary: found 3"):
        recipe(tmp_path, 3)
