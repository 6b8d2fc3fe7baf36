"""The tokenizer of an export gives the ids of ours, and transformers' own classes load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, pipeline

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.tasks.passkey import build_trial
from fope_lab.data.tokenizers.recipe import ByteLevelBPE
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, load_tokenizer
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.model.export.folder import export
from fope_lab.model.export.tokenizer import byte_characters

CONFIG = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=384)
SPECIAL = ["<|endoftext|>", "<|pad|>", "<|beginoftext|>", "<0x41>"]
"""Texts that a tokenizer could take for tokens of its own."""
TEXTS = st.lists(st.text() | st.sampled_from(SPECIAL)).map("".join)


def exported(folder: Path, tokenizer: str = "byte", to: str = "fope-lab") -> Path:
    model = Decoder(CONFIG, "rope", train_length=64)
    save_model(folder / "checkpoint", model, context_length=64, tokenizer=tokenizer)
    return export(folder / "checkpoint", folder / to, to=to)


@pytest.fixture(scope="module", params=["fope-lab", "llama"])
def byte_export(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("bytes"), to=request.param)


@pytest.fixture(scope="module")
def loaded(byte_export: Path) -> Any:
    # Without the argument, transformers asks on the terminal whether to run the model's code.
    return AutoTokenizer.from_pretrained(byte_export, trust_remote_code=False)


@given(text=TEXTS)
def test_a_text_has_the_same_ids_and_comes_back(loaded: Any, text: str) -> None:
    expected = ByteTokenizer().encode(text)
    assert loaded(text).input_ids == loaded.encode(text) == expected
    assert loaded.decode(expected) == text


@given(values=st.lists(st.integers(0, 255)))
def test_any_bytes_are_decoded_alike(loaded: Any, values: list[int]) -> None:
    assert loaded.decode(values) == ByteTokenizer().decode(values)
    assert loaded.decode(list(range(256))) == ByteTokenizer().decode(range(256))


def test_its_special_tokens_and_its_size(loaded: Any) -> None:
    ours = ByteTokenizer()
    ids = (loaded.eos_token_id, loaded.pad_token_id, loaded.bos_token_id)
    assert ids == (ours.eos_id, ours.pad_id, ours.bos_id)
    assert len(loaded) == ours.tokens
    text = [*b"ab", ours.eos_id, ours.pad_id]
    assert loaded.decode(text, skip_special_tokens=True) == ours.decode(text) == "ab"


def test_the_characters_of_bytes_are_those_of_the_library() -> None:
    characters = byte_characters()
    assert sorted(characters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    [(encoded, _)] = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str("é \n")
    assert encoded == "".join(characters[byte] for byte in "é \n".encode())


def test_our_evaluations_read_the_same_prompts_from_it(byte_export: Path) -> None:
    again = load_tokenizer(str(byte_export))
    for form, length in (("symbolic", 32), ("english", 400)):
        ours = build_trial(ByteTokenizer(), length, 3, form=form)
        theirs = build_trial(again, length, 3, form=form)
        assert theirs.input_ids.tolist() == ours.input_ids.tolist()
    assert (again.eos_id, again.pad_id) == (256, 257)


def test_a_pipeline_writes_text(
    byte_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path))
    write = pipeline("text-generation", model=str(byte_export), trust_remote_code=True)
    [found] = write("ab", max_new_tokens=3, do_sample=False)
    ids = torch.tensor([list(b"ab")])
    expected = write.model.generate(ids, max_new_tokens=3, do_sample=False)[0].tolist()
    assert found["generated_text"] == ByteTokenizer().decode(expected)


def test_a_tokenizer_that_we_train_goes_with_its_model(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    corpus = tmp_path / "text.txt"
    corpus.write_text("The grass is green. The sky is blue.\n\n" * 20)
    parsed = parse_corpus({"files": str(corpus)}, tmp_path)
    ByteLevelBPE(vocabulary=300, corpus=parsed).write(path)
    ours = load_tokenizer(str(path))
    folder = exported(tmp_path, str(path))
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    assert (loaded.eos_token, loaded.pad_token) == ("<|endoftext|>", "<|pad|>")
    assert (loaded.eos_token_id, loaded.pad_token_id) == (ours.eos_id, ours.pad_id)
    for text in ("The sky", "é\r\n\t 12", ""):
        assert loaded.encode(text) == ours.encode(text)
        assert loaded.decode(loaded.encode(text)) == text


def test_what_generation_ends_with_is_what_the_tokenizer_says(byte_export: Path) -> None:
    ends = json.loads((byte_export / "generation_config.json").read_text())
    assert (ends["eos_token_id"], ends["pad_token_id"]) == (256, 257)
