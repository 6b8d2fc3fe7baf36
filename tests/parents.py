"""A checkpoint of ours and prepared data, as an evaluation's parents."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.model import Decoder, ModelConfig, save_model


@pytest.fixture(scope="session")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny untrained RoPE model and the validation tokens of Python's documentation."""
    model_directory = tmp_path_factory.mktemp("model")
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=272)
    model = Decoder(config, "rope", train_length=32, seed=0)
    save_model(model_directory, model, context_length=32, tokenizer="byte")
    data_directory = tmp_path_factory.mktemp("data")
    corpus = parse_corpus("python-docs", Path())
    write_packed(data_directory, corpus, ByteTokenizer(), "validation")
    return {"from": model_directory, "data.0": data_directory}
