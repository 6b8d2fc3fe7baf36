"""An analysis with curves as a stage: what tables, papers and claims read of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from measured import measured, ran
from sections import read_section

from fope_lab.config.roles import MODEL, text_role
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import write_packed
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.analysis import AnalysisStage
from fope_lab.model import Decoder, ModelConfig, save_model
from fope_lab.stages.metric import ARRAYS

OPTIONS = {"type": "attention-head", "layer": 1, "head": 2, "length": 4}


def test_the_curves_of_an_analysis_are_metrics_by_position(tmp_path: Path) -> None:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, vocab_size=272)
    model = Decoder(config, "rope", train_length=64, seed=3)
    save_model(tmp_path / "model", model, context_length=64, tokenizer="byte")
    (tmp_path / "text").mkdir()
    corpus = parse_corpus("python-docs", tmp_path)
    write_packed(tmp_path / "text", corpus, ByteTokenizer(), "validation")
    stage = read_section(
        AnalysisStage,
        {"kind": "analysis", "from": "pretrain", "analysis": OPTIONS, "corpus": "python-docs"},
    )
    declared = {metric.name: metric.xs for metric in stage.metrics()}
    assert declared == {
        "upper_bound_by_position": (0, 1, 2, 3),
        "own_score_by_position": (0, 1, 2, 3),
        "previous_score_by_position": (1, 2, 3),
    }
    parents = {MODEL: tmp_path / "model", text_role(0): tmp_path / "text"}
    folder, result = ran(stage, tmp_path / "store", parents)
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    logits = np.load(checkpoint.path / ARRAYS)["logits"]
    found = measured(result)
    assert set(found) == {(name, x) for name, xs in declared.items() for x in xs or ()}
    for x in (1, 2, 3):
        assert found["own_score_by_position", x] == pytest.approx(logits[x, x])
        assert found["previous_score_by_position", x] == pytest.approx(logits[x, x - 1])
