"""The parameters of a run: its configuration, and what varies in the model that it reads."""

from __future__ import annotations

from pathlib import Path

from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.parameters import LENGTH_LIMIT, flat, parameters
from fope_lab.tracking.prepared_views import prepared_views
from fope_lab.tracking.view import Outline

SWEEP = """
name: varied
description: Two rates, two embeddings, extended to two lengths.
seeds: [0, 3]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, hidden_size: 32, num_heads: 2, head_dim: 16}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 4096, batch_tokens: 1024, learning_rate: 1e-3}
  extend:
    kind: extend
    from: pretrain
    embedding: {type: yarn, factor: 2}
    data: {corpus: python-docs, length: 128}
    train: {tokens: 4096, batch_tokens: 1024, learning_rate: 1e-4}
  short: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [64, 128]}
  long: {kind: perplexity, from: extend, corpus: python-docs, lengths: [64, 128]}
grid:
  pretrain.train.learning_rate: [1e-3, 3e-3]
  extend.data.length: [128, 256]
"""


def test_evaluations_have_what_varies_in_their_models(tmp_path: Path) -> None:
    path = tmp_path / "varied.yaml"
    path.write_text(SWEEP)
    outline = Outline.of(plan(load_sweep(path)), {})
    stages = {stage.key: stage for stage in outline.stages}
    names = ("embedding", "seed", "train_length", "learning_rate", "pretrain.train.learning_rate")
    found = {
        tuple(parameters(stage, stages).get(name) for name in (*names, "extend.data.length"))
        for stage in outline.stages
        if stage.kind == "perplexity"
    }
    rates, seeds = ("0.001", "0.003"), ("0", "3")
    short = {("rope", seed, "64", rate, rate, None) for rate in rates for seed in seeds}
    assert found == short | {
        ("yarn(factor=2)", seed, length, "0.0001", rate, length)
        for rate in rates
        for seed in seeds
        for length in ("128", "256")
    }


def test_the_name_of_an_embedding_takes_the_place_of_one_that_is_inherited(tmp_path: Path) -> None:
    path = tmp_path / "varied.yaml"
    path.write_text(SWEEP.replace("    embedding: {type: yarn, factor: 2}\n", ""))
    outline = Outline.of(plan(load_sweep(path)), {})
    stages = {stage.key: stage for stage in outline.stages}
    extended = next(stage for stage in outline.stages if stage.kind == "extend")
    assert extended.config["embedding"] is None
    assert parameters(extended, stages)["embedding"] == "rope"


def test_parameters_are_flat_and_readable() -> None:
    config = {
        "model": {"scale": "60m", "num_layers": 4, "tie": True, "gates": {}},
        "data": {"mix": [{"corpus": {"type": "c4"}, "weight": 0.7}, {"task": None}]},
        "lengths": [128, 256],
    }
    assert flat(config) == {
        "model.scale": "60m",
        "model.num_layers": "4",
        "model.tie": "true",
        "model.gates": "{}",
        "data.mix.0.corpus.type": "c4",
        "data.mix.0.weight": "0.7",
        "data.mix.1.task": "null",
        "lengths": "[128, 256]",
    }


def test_a_parameter_is_cut_where_mlflow_would_refuse_it() -> None:
    (value,) = flat({"files": ["x" * 100] * 100}).values()
    assert len(value) == LENGTH_LIMIT
    assert value.endswith("…")
    (whole,) = flat({"text": "x" * LENGTH_LIMIT}).values()
    assert whole == "x" * LENGTH_LIMIT


def test_what_a_selection_chooses_is_no_parameter_of_what_starts_from_it(tmp_path: Path) -> None:
    """The rate is known only once it is chosen, and the parameters of a run never change."""
    path = tmp_path / "varied.yaml"
    text = SWEEP.replace("1e-3}\n", "1e-3, validate_every: 2}\n", 1)
    text = text.replace("  extend:\n", "    select: {over: train.learning_rate}\n  extend:\n", 1)
    path.write_text(text.replace("corpus: python-docs, lengths", "corpus: python-source, lengths"))
    outline = Outline.of(plan(load_sweep(path)), {})
    stages = {stage.key: stage for stage in outline.stages}
    names = ("embedding", "train_length", "learning_rate", "pretrain.train.learning_rate")
    found = {
        tuple(parameters(stage, stages).get(name) for name in names)
        for stage in outline.stages
        if stage.section == "short"
    }
    assert found == {("rope", "64", None, None)}
    metrics = {
        stage.key: ("perplexity/64",) for stage in outline.stages if stage.section == "short"
    }
    views = {view.name: view for view in prepared_views(outline, metrics)}
    assert "select" not in views
    assert "tags.kind != 'select'" in views["results"].state["searchFilter"]
