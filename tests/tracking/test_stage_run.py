"""What the run of a stage says: tags, parameters, datasets and its log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.utils.validation import _validate_metric_name
from tracking_scene import STAGES, Scene, finish, of

from fope_lab.store.attempts import TimeTaken
from fope_lab.store.folder import StageFolder
from fope_lab.store.state import StageState, Status
from fope_lab.store.writer import Row
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.plan import output_digest
from fope_lab.tracking import upload
from fope_lab.tracking.outline import Outline
from fope_lab.tracking.prepared_views import prepared_views
from fope_lab.tracking.stage_run import (
    PARAMETER_LENGTH,
    Timeline,
    flat,
    made_tags,
    metric_path,
    parameters,
    tags,
)
from fope_lab.tracking.upload import not_finite, points


def plan_of(**changes: Any) -> Any:
    stage = {
        "key": "k1",
        "label": "pretrain[embedding=rope]",
        "section": "pretrain",
        "kind": "pretrain",
        "config": {"train": {"betas": (0.9, 0.95)}},
        "axes": {"pretrain.embedding": {"type": "rope", "base": 129}},
        "parents": {"data.0": "k0"},
        "seed": 0,
        "embedding": "rope",
        "scale": None,
        "spec": SimpleNamespace(metrics=lambda: ()),
    } | changes
    return SimpleNamespace(
        sweep=SimpleNamespace(
            name="s", description="d", path="sweeps/s.yaml", stages=(SimpleNamespace(**stage),)
        ),
        states={"k1": StageState(Status.DONE)},
    )


@given(st.dictionaries(st.text("abcü@% =", min_size=1), st.floats(), min_size=1))
def test_points_have_names_and_values_that_mlflow_takes(values: dict[str, float]) -> None:
    found = points(Row(7, 1000, values), {})
    for point, value in zip(found, values.values(), strict=True):
        _validate_metric_name(point.name)
        assert (point.step, point.timestamp) == (7, 1000)
        assert repr(point.value) == (repr(value) if math.isfinite(value) else "nan")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_any_text_makes_the_path_of_a_metric(parts: list[str]) -> None:
    name = metric_path(["x", *(f"{part}.a" for part in parts)])
    _validate_metric_name(name)
    assert name.count("/") == len(parts)


def test_the_path_of_a_metric_stays_readable() -> None:
    assert metric_path(("difference", "RoPE + QK_Norm", "512")) == "difference/RoPE QK_Norm/512"
    assert metric_path(("stages_done",)) == "stages_done"


def test_not_finite_names_what_was_lost() -> None:
    rows = [Row(1, 0, {"a": 1.0, "b": math.inf}), Row(2, 0, {"a": -math.inf})]
    assert not_finite(rows) == "b=inf at 1, a=-inf at 2"
    assert not_finite([Row(1, 0, {"a": 1.0})]) is None


def test_tags_say_which_code_made_a_stage_and_how_long_it_took() -> None:
    def found(makers: list[dict[str, Any]], taken: TimeTaken | None) -> dict[str, str]:
        folder = SimpleNamespace(makers=lambda: makers, time_taken=lambda: taken)
        return made_tags(folder, [])  # type: ignore[arg-type]

    makers = [{"commit": "abc123", "clean": False}, {"commit": "def456", "clean": True}]
    commits = {"commit": "abc123+, def456", "mlflow.source.git.commit": "abc123"}
    assert found(makers, TimeTaken(12.3, 3)) == commits | {"time": "12 s over 3 attempts"}
    assert found([{}], TimeTaken(12.3, 1)) == {"time": "12 s"}
    assert found([], None) == {}


def test_a_curve_over_lengths_is_a_number_for_each_length_too() -> None:
    curves = {"perplexity_by_length": "length", "accuracy_by_position": "position"}
    values = {"perplexity_by_length": 9.5, "perplexity_by_length_stderr": 0.5}
    values |= {"accuracy_by_position": 1.0, "loss": 2.0, "words_by_length": 3.0}
    assert points(Row(64, 7, values), curves) == [
        ("perplexity_by_length", 64, 7, 9.5),
        ("perplexity/64", 0, 7, 9.5),
        ("perplexity_by_length_stderr", 64, 7, 0.5),
        ("accuracy_by_position", 64, 7, 1.0),
        ("loss", 64, 7, 2.0),
        ("words_by_length", 64, 7, 3.0),  # which no metric declares as a curve
    ]


def test_a_stage_stays_cached_or_not_as_it_was_first_planned() -> None:
    assert Outline.of(plan_of(), {}).stages[0].cached
    assert not Outline.of(plan_of(), {"k1": False}).stages[0].cached


def test_tags_are_texts_and_leave_out_what_a_stage_does_not_have() -> None:
    failed = Timeline("failed", 0, 1, "boom " * 1000, Path("0001-000000010"))
    outline = Outline.of(plan_of(seed=None), {})
    found = tags(outline, outline.stages[0], failed)
    assert found["axis.pretrain.embedding"] == '{"type": "rope", "base": 129}'
    assert found["parent.data.0"] == "k0"
    assert (found["sweep.s"], found["mlflow.source.name"]) == ("true", "sweeps/s.yaml")
    assert found["error"].startswith("boom boom")
    assert len(found["error"]) <= 1000
    assert not {"seed", "scale"} & found.keys()


SWEEP = f"""name: varied
description: Two rates, two embeddings, extended to two lengths.
seeds: [0, 3]
{STAGES}"""
SWEEP += """  extend:
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
    assert len(value) == PARAMETER_LENGTH
    assert value.endswith("…")
    (whole,) = flat({"text": "x" * PARAMETER_LENGTH}).values()
    assert whole == "x" * PARAMETER_LENGTH


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


def inputs(run: Run) -> list[tuple[str, str, str]]:
    """The name, the context and the source of each dataset of a run."""
    return [
        (one.dataset.name, one.tags[0].value, json.loads(one.dataset.source)["uri"])
        for one in run.inputs.dataset_inputs
    ]


def test_a_run_has_the_data_that_its_stage_reads(scene: Scene) -> None:
    plan = scene.all_done()
    for _ in range(2):
        scene.restart().project(plan)
        scene.tracker.project(plan)
    trained, evaluated = of(plan, "pretrain"), of(plan, "perplexity")
    sections = {stage.key: stage for stage in plan.sweep.stages}
    for stage, split, context in (
        (trained, "train", "training"),
        (evaluated, "validation", "evaluation"),
    ):
        key = stage.parents["data.0"]
        assert sections[key].label == f"prepare-data[python-docs,byte,{split}]"
        wanted = (f"python-docs,byte,{split}", context, f"prepare-data/{key}")
        assert inputs(scene.run(stage)) == [wanted]
    assert inputs(scene.run(of(plan, "prepare-data", None))) == []
    [data] = scene.run(trained).inputs.dataset_inputs
    digest = output_digest(scene.store.folder("prepare-data", trained.parents["data.0"]))
    assert data.dataset.digest == str(digest)[:36]


def fail(folder: StageFolder, error: str) -> None:
    with pytest.raises(ValueError, match=error), folder.begin("test", {}):
        raise ValueError(error)


def log_of(scene: Scene, run_id: str) -> str:
    artifacts = scene.store.root / "mlartifacts" / "first" / run_id / "artifacts"
    return (artifacts / "log.txt").read_text()


def test_each_failure_sends_the_log_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, stage = scene.planned()
    with scene.folder(stage).begin("test", {}):
        scene.tracker.project(plan)
    assert scene.files(stage) == []
    for error in ("no memory", "no data"):
        fail(scene.folder(stage), error)
        scene.tracker.project(plan)
        text = log_of(scene, scene.run(stage).info.run_id)
        assert text == scene.folder(stage).paths.log.read_text()
        assert f"ValueError: {error}" in text
    monkeypatch.setattr(MlflowClient, "log_text", lambda *_, **__: pytest.fail("sent again"))
    scene.restart().project(plan)


def test_the_log_of_a_stage_that_succeeded_in_the_end_says_so(scene: Scene) -> None:
    plan = scene.plan()
    stage, other = of(plan, "pretrain"), of(plan, "pretrain", "nope")
    fail(scene.folder(stage), "no data")
    scene.tracker.project(plan)
    finish(scene.folder(stage))
    finish(scene.folder(other))
    scene.tracker.project(plan)
    run = scene.run(stage)
    assert run.info.status == "FINISHED"
    first, _, text = log_of(scene, run.info.run_id).partition("\n\n")
    assert first == upload.OVERCOME
    assert text == scene.folder(stage).paths.log.read_text()
    assert scene.files(other) == []


def test_only_the_end_of_a_long_log_is_sent(scene: Scene) -> None:
    plan, stage = scene.planned()
    fail(scene.folder(stage), "x" * 3 * upload.LOG_BYTES + "the end")
    scene.tracker.project(plan)
    first, _, text = log_of(scene, scene.run(stage).info.run_id).partition("\n")
    whole = scene.folder(stage).paths.log.read_text()
    assert len(text) == upload.LOG_BYTES
    assert whole.endswith(text)
    assert first == f"({len(whole) - len(text):,} bytes before this are only in the store.)"


def test_a_failure_without_a_log_is_sent_without_it(scene: Scene) -> None:
    plan, stage = scene.planned()
    fail(scene.folder(stage), "no data")
    scene.folder(stage).paths.log.unlink()
    scene.tracker.project(plan)
    assert scene.run(stage).info.status == "FAILED"
    assert scene.files(stage) == []
