"""A tokenizer trained on a corpus: the same every time, and able to write any text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.recipe import (
    SPECIAL_TOKENS,
    TrainedTokenizer,
    known_vocabulary,
    may_write_chats,
    parse_tokenizer,
    tokenizer_json_schema,
)
from fope_lab.data.tokenizers.tokenizer import (
    HuggingFaceTokenizer,
    Tokenizer,
    beside,
    load_tokenizer,
)
from fope_lab.evaluation.perplexity.losses import text_bytes

RECIPE = {"train": "bpe", "vocabulary": 500, "corpus": "python-docs"}
TRAIN = """
import sys
from pathlib import Path
from fope_lab.data.tokenizers.recipe import parse_tokenizer
parse_tokenizer(eval(sys.argv[1]), Path()).write(Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RECIPE's tokenizer.json."""
    path = tmp_path_factory.mktemp("trained") / "tokenizer.json"
    recipe = parse_tokenizer(RECIPE, Path())
    assert isinstance(recipe, TrainedTokenizer)
    recipe.write(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(trained: Path) -> Tokenizer:
    return load_tokenizer(str(trained))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_training_again_gives_the_same_file(trained: Path, tmp_path: Path, threads: str) -> None:
    path = tmp_path / "tokenizer.json"
    environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
    command = [sys.executable, "-c", TRAIN, repr(RECIPE), str(path)]
    subprocess.run(command, check=True, env=environment)
    assert path.read_bytes() == trained.read_bytes()


def test_the_vocabulary_is_known_before_training(tokenizer: Tokenizer) -> None:
    assert known_vocabulary(parse_tokenizer(RECIPE, Path())) == tokenizer.vocabulary_size == 512
    assert (tokenizer.eos_id, tokenizer.pad_id, tokenizer.prefix_ids) == (0, 1, ())


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    if not any(name in text for name in SPECIAL_TOKENS):  # Hypothesis tries what sources quote
        assert all(2 <= token < 500 for token in ids)


def test_a_text_that_names_a_special_token_has_its_id(tokenizer: Tokenizer) -> None:
    """As the templates of chats need."""
    assert [tokenizer.encode(name) for name in SPECIAL_TOKENS] == [[0], [1]]


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4))
def test_documents_have_the_bytes_of_their_text(tokenizer: Tokenizer, texts: list[str]) -> None:
    ids = [i for text in texts for i in (*tokenizer.encode(text), tokenizer.eos_id)]
    size = text_bytes(tokenizer, np.array([tokenizer.eos_id, *ids], np.uint16))
    assert size == sum(len(text.encode()) for text in texts)


def test_words_of_the_corpus_are_short(tokenizer: Tokenizer) -> None:
    text = next(iter(parse_corpus("python-docs", Path()).documents("train")))
    assert len(tokenizer.encode(text)) < 0.6 * len(text.encode())


def test_a_checkpoint_keeps_its_own_copy(
    trained: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    copied = load_tokenizer(beside(tmp_path, tokenizer.save(tmp_path)))
    assert copied.identity() == tokenizer.identity()
    (tmp_path / "moved").mkdir()
    again = load_tokenizer(beside(tmp_path / "moved", copied.save(tmp_path / "moved")))
    assert again.identity() == tokenizer.identity()
    assert again.encode("the same text") == tokenizer.encode("the same text")


def test_a_folder_is_copied_whole(tmp_path: Path, make_bpe: Any) -> None:
    bpe = make_bpe(bos=True)
    bpe.chat_template = "{{ messages }}"
    bpe.save_pretrained(tmp_path / "folder")
    (tmp_path / "folder" / "weights.bin").write_text("large")
    tokenizer = load_tokenizer(str(tmp_path / "folder"))
    checkpoint = tmp_path / "checkpoint"
    copied = load_tokenizer(beside(checkpoint, tokenizer.save(checkpoint)))
    assert isinstance(copied, HuggingFaceTokenizer)
    assert copied.identity() == tokenizer.identity()
    assert copied.prefix_ids == tokenizer.prefix_ids == (1,)
    assert not list(checkpoint.rglob("weights.bin"))
    assert copied.encode_chats([[{"role": "user", "content": "x"}]])


@pytest.mark.parametrize("name", ["byte", "org/name@abc"])
def test_a_name_is_kept_as_it_is(tmp_path: Path, name: str) -> None:
    assert beside(tmp_path, name) == name
    assert load_tokenizer("byte").save(tmp_path) == "byte"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({}, {"train"}),
        ({"train": "bpe"}, {"vocabulary", "corpus"}),
        ({**RECIPE, "train": "unigram"}, {"train"}),
        ({**RECIPE, "vocabulary": 257}, {"vocabulary"}),
        ({**RECIPE, "vocabulary": "500"}, {"vocabulary"}),
        ({**RECIPE, "corpus": "python-docstrings"}, {"corpus"}),
        ({**RECIPE, "corpus": {"type": "c4", "limt": 1}, "vocab": 3}, {"corpus", "vocab"}),
        (7, {""}),
        ("", {""}),
    ],
)
def test_all_that_is_wrong_is_told(value: Any, problems: set[str]) -> None:
    with pytest.raises(DataError) as caught:
        parse_tokenizer(value, Path())
    assert {str(one.path[0]) if one.path else "" for one in caught.value.problems} == problems
    assert not jsonschema.Draft202012Validator(tokenizer_json_schema()).is_valid(value) or (
        value in ("", {**RECIPE, "corpus": "python-docstrings"})  # what a schema can't tell
    )


def test_a_description_stands_for_what_its_canonical_form_does() -> None:
    recipe = parse_tokenizer(RECIPE, Path())
    assert isinstance(recipe, TrainedTokenizer)
    assert parse_tokenizer(recipe.canonical(), Path("/nowhere")) == recipe
    assert hash(recipe) == hash(parse_tokenizer(RECIPE, Path()))
    jsonschema.Draft202012Validator(tokenizer_json_schema()).validate(RECIPE)


def test_who_can_write_chats_is_known_where_it_can_be(tmp_path: Path, make_bpe: Any) -> None:
    bpe = make_bpe()
    bpe.save_pretrained(tmp_path / "without")
    bpe.chat_template = "{{ messages }}"
    bpe.save_pretrained(tmp_path / "with")
    names = ["byte", "gpt-neox", str(tmp_path / "without"), str(tmp_path / "with"), "some/name"]
    recipes = [parse_tokenizer(RECIPE, Path()), *names]
    assert [may_write_chats(one) for one in recipes] == [False] * 4 + [True] * 2
