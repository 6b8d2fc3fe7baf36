"""A finished training has a model in MLflow that leads to its checkpoint, and has its numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.exceptions import MlflowException
from tracking_scene import CURVE, STAGES, Scene, finish, measure, of

from fope_lab.sweep import Plan, load_sweep, plan

FURTHER = f"""name: further
description: A model that is extended, fine-tuned, and read with another embedding.
seeds: [0]
{STAGES}"""
FURTHER += """  extend:
    kind: extend
    from: pretrain
    embedding: {type: yarn, factor: 2}
    data: {corpus: python-docs, length: 128}
    train: {tokens: 2048, batch_tokens: 1024, learning_rate: 1e-4}
  swapped: {kind: extend, from: pretrain, embedding: {type: pi, factor: 4}, train: none}
"""


def models(scene: Scene) -> list[LoggedModel]:
    """The models of the experiment."""
    client = MlflowClient(tracking_uri=scene.uri)
    experiment = client.get_experiment_by_name("first")
    return list(client.search_logged_models([experiment.experiment_id]))


def model_of(scene: Scene, plan: Plan, embedding: str = "rope") -> LoggedModel:
    """The one model of an embedding."""
    key = of(plan, "pretrain", embedding).key
    [model] = [model for model in models(scene) if model.tags["key"] == key]
    return model


def numbers(model: LoggedModel) -> list[tuple[str, float]]:
    """The names and values of a model's metrics."""
    return sorted((metric.key, metric.value) for metric in model.metrics)


WANTED = sorted((f"perplexity/{x}", value) for x, value in CURVE.items())


def assert_whole(scene: Scene, plan: Plan) -> None:
    """Each training has one model, which its run and the run of its evaluation are linked to."""
    assert len(models(scene)) == 2
    client = MlflowClient(tracking_uri=scene.uri)
    for embedding in ("rope", "nope"):
        model = model_of(scene, plan, embedding)
        assert model.status == "READY"
        assert numbers(model) == WANTED
        run = scene.run(of(plan, "pretrain", embedding))
        assert model.source_run_id == run.info.run_id
        assert [(one.model_id, one.step) for one in run.outputs.model_outputs] == [
            (model.model_id, 3)
        ]
        evaluation = client.get_run(scene.run(of(plan, "perplexity", embedding)).info.run_id)
        assert [one.model_id for one in evaluation.inputs.model_inputs] == [model.model_id]
        assert evaluation.data.tags["model_id"] == model.model_id


def test_a_training_has_one_model_which_leads_to_its_checkpoint(scene: Scene) -> None:
    plan = scene.all_done()
    for _ in range(2):
        scene.restart().project(plan)
        scene.tracker.sync()
        assert_whole(scene, plan)
    stage, model = of(plan, "pretrain"), model_of(scene, plan)
    assert model.name == "rope pretrain"
    assert (Path(model.tags["checkpoint"]) / "model").read_bytes() == b"model"
    assert (model.tags["kind"], model.tags["seed"]) == ("pretrain", "0")
    assert model.params == {
        "key": stage.key,
        "stage": "pretrain",
        "embedding": "rope",
        "pretrain.embedding": "rope",
        "seed": "0",
        "tokens": "4096",
        "train_length": "64",
        "learning_rate": "0.001",
    }
    data = {metric.dataset_name for metric in model.metrics}
    assert data == {"python-docs,byte,validation"}


def test_a_model_made_of_another_has_it_as_its_input(scene: Scene) -> None:
    path = scene.root / "further.yaml"
    path.write_text(FURTHER)
    further = plan(load_sweep(path), scene.store)
    stages = {stage.section: stage for stage in further.sweep.stages if "from" in stage.parents}
    first = of(further, "pretrain")
    for stage in (first, *stages.values()):
        finish(scene.folder(stage), checkpoint=True)
    scene.tracker.project(further)
    runs = {stage.section: scene.run(stage, "further") for stage in (first, *stages.values())}
    made = {name: run.outputs.model_outputs[0].model_id for name, run in runs.items()}
    assert len(set(made.values())) == 3
    client = MlflowClient(tracking_uri=scene.uri)
    tokens = {"pretrain": "4096", "extend": "2048", "swapped": "4096"}
    for name, run in runs.items():
        read = [one.model_id for one in client.get_run(run.info.run_id).inputs.model_inputs]
        assert read == ([] if name == "pretrain" else [made["pretrain"]])
        model = client.get_logged_model(made[name])
        assert (model.params["tokens"], model.tags["stage"]) == (tokens[name], name)
        assert not model.metrics
    assert stages["swapped"].kind == client.get_logged_model(made["swapped"]).model_type


REQUESTS = ("create_logged_model", "finalize_logged_model", "log_outputs", "log_inputs")


@pytest.mark.parametrize("last", REQUESTS)
def test_an_upload_that_was_killed_makes_no_second_model(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    plan = scene.all_done()
    real = getattr(MlflowClient, last)

    def killed(*args: Any, **settings: Any) -> None:
        real(*args, **settings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, last, killed)
        with pytest.raises(KeyboardInterrupt):
            scene.restart().project(plan)
    scene.restart().sync()
    assert_whole(scene, plan)


def test_a_model_follows_its_checkpoint(scene: Scene) -> None:
    plan = scene.all_done()
    scene.tracker.project(plan)
    stage, wanted = of(plan, "pretrain"), model_of(scene, plan).tags["checkpoint"]
    client = MlflowClient(tracking_uri=scene.uri)
    client.set_tag(scene.run(stage).info.run_id, "checkpoint", "where the store was before")
    client.set_logged_model_tags(model_of(scene, plan).model_id, {"checkpoint": "there"})
    scene.restart().sync()
    assert model_of(scene, plan).tags["checkpoint"] == wanted
    assert scene.run(stage).data.tags["checkpoint"] == wanted
    assert_whole(scene, plan)


def test_a_training_that_was_done_again_has_a_new_model(scene: Scene) -> None:
    plan = scene.all_done()
    scene.tracker.project(plan)
    before = model_of(scene, plan).model_id
    stage = of(plan, "pretrain")
    scene.folder(stage).set_aside("test")
    finish(scene.folder(stage), checkpoint=True)
    scene.restart().project(plan)
    found = [one for one in models(scene) if one.tags["key"] == stage.key]
    [run] = [one for one in scene.runs() if one.data.tags["key"] == stage.key]
    [now] = [one for one in found if one.source_run_id == run.info.run_id]
    assert now.tags["checkpoint"] == str(scene.folder(stage).state().checkpoint.path)  # type: ignore[union-attr]
    assert [one.model_id for one in found] == [now.model_id] != [before]
    assert numbers(now) == WANTED


def test_an_evaluation_of_another_model_is_not_linked(scene: Scene) -> None:
    plan = scene.plan()
    finish(scene.folder(of(plan, "pretrain")), checkpoint=True)
    stage = of(plan, "perplexity")
    parents = {"from": "a model before it was trained again"}
    with scene.folder(stage).begin("test", {}) as attempt:
        attempt.writer.log(64, {"perplexity_by_length": 9.5})
        attempt.finish({}, parents=parents)
    scene.tracker.project(plan)
    assert "model_id" not in scene.run(stage).data.tags
    assert not model_of(scene, plan).metrics


def test_a_value_that_is_not_finite_is_not_one_of_the_model(scene: Scene) -> None:
    plan = scene.plan()
    finish(scene.folder(of(plan, "pretrain")), checkpoint=True)
    measure(scene.folder(of(plan, "perplexity")), {64: 9.5, 128: math.nan, 256: math.inf})
    scene.tracker.project(plan)
    assert numbers(model_of(scene, plan)) == [("perplexity/64", 9.5)]


def test_a_server_without_models_gets_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.all_done()

    def refused(*_: Any, **__: Any) -> None:
        raise MlflowException("not found", error_code=1001)  # ENDPOINT_NOT_FOUND

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "search_logged_models", refused)
        patch.setattr(MlflowClient, "create_logged_model", refused)
        scene.tracker.project(plan)
    assert {run.info.status for run in scene.runs()} == {"FINISHED"}
    scene.restart().sync()  # the server has been upgraded
    assert_whole(scene, plan)
