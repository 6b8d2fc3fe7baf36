"""Stages whose parent is a Hugging Face folder: trained on, and evaluated as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from sections import read_section
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.parity import random_model
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.evaluation.context import run as evaluate
from fope_lab.evaluation.perplexity import Perplexity
from fope_lab.model import load_model, read_config
from fope_lab.stages.base import StageConfig
from fope_lab.stages.training import Extend
from fope_lab.store.root import Store
from trainers import stage as training_stage

TEXT = "one two three four five six seven eight nine ten\n\n" * 80


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with YaRN's scaling from 32 tokens, and a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("llama")
    random_model("yarn").save_pretrained(folder)
    words = {word: number for number, word in enumerate(["<eos>", "<unk>", *TEXT.split()[:10]])}
    rust = RustTokenizer(WordLevel(words, unk_token="<unk>"))
    rust.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return folder


@pytest.fixture
def parents(tmp_path: Path, llama: Path) -> Mapping[str, Path]:
    """The folder, and text that its own tokenizer has prepared."""
    (tmp_path / "text.txt").write_text(TEXT)
    corpus = parse_corpus({"files": str(tmp_path / "text.txt")}, tmp_path)
    tokenizer = load_tokenizer(read_config(llama).tokenizer)
    for name, split in (("data.0", "train"), ("held-out", "validation")):
        (tmp_path / name).mkdir()
        write_packed(tmp_path / name, corpus, tokenizer, split)
    return {"from": llama, "data.0": tmp_path / "data.0"}


def run(root: Path, stage: StageConfig, work: Any, parents: Mapping[str, Path]) -> Path:
    """The folder of a stage that has run."""
    folder = Store(root / "store").folder(stage.kind, "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(work(stage, attempt.writer, parents))
    return folder.path


@pytest.mark.parametrize("embedding", [None, "fope", {"type": "resonance-yarn", "factor": 8}])
def test_a_model_is_extended(tmp_path: Path, parents: Mapping[str, Path], embedding: Any) -> None:
    stage = read_section(
        Extend,
        {
            "kind": "extend",
            "from": str(parents["from"]),
            "embedding": embedding,
            "data": {"corpus": {"files": str(tmp_path / "text.txt")}, "length": 48},
            "train": {"tokens": 48 * 24, "batch_tokens": 96, "learning_rate": 1e-2},
        },
    )
    path = run(tmp_path, stage, training_stage.run, parents)
    before = load_model(parents["from"])
    [checkpoint] = (path / "checkpoint").iterdir()
    trained = load_model(checkpoint)
    assert (trained.train_length, read_config(parents["from"]).context_length) == (32, 128)
    assert trained.embedding == (before.embedding if embedding is None else stage.embedding)
    result = json.loads((path / "result.json").read_text())
    rows = Store(tmp_path / "store").folder("extend", "key").rows()
    [loss] = [metric["value"] for metric in result["metrics"]]
    assert loss < rows[0].values["loss"]
    # It goes on from a checkpoint of ours, which has the same tokenizer.
    ours, theirs = (load_tokenizer(read_config(p).tokenizer) for p in (checkpoint, parents["from"]))
    assert ours.identity() == theirs.identity()


def test_a_model_is_evaluated(tmp_path: Path, parents: Mapping[str, Path], llama: Path) -> None:
    """The perplexity is Hugging Face's own."""
    stage = read_section(
        Perplexity,
        {
            "kind": "perplexity",
            "from": str(llama),
            "corpus": {"files": str(tmp_path / "text.txt")},
            "lengths": [20],
        },
    )
    given = {**parents, "data.0": tmp_path / "held-out"}
    path = run(tmp_path, stage, evaluate, given)
    result = json.loads((path / "result.json").read_text())
    [[found]] = [text.values() for text in result["details"]["sums"].values()]
    expected = {"tokenizer": load_tokenizer(str(llama)).identity(), "split": "validation"}
    tokens = PackedCorpus(given["data.0"], expected).tokens
    model = LlamaForCausalLM.from_pretrained(llama).eval()
    total = 0.0
    for start in range(0, len(tokens) - 1, 20):
        ids = torch.tensor(tokens[start : start + 21].astype("int64"))[None]
        with torch.no_grad():
            total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
    assert found["tokens"] == len(tokens) - 1
    assert found["loss_sum"] / found["tokens"] == pytest.approx(total / (len(tokens) - 1), rel=1e-6)
