"""The prepared data that a stage reads are the datasets of its run."""

from __future__ import annotations

import json

from mlflow.entities import Run
from tracking_scene import Scene, finish, of

from fope_lab.sweep import Plan
from fope_lab.sweep.made_by import output_digest


def all_done(scene: Scene) -> Plan:
    """A sweep whose stages are done; preparing data leaves a checkpoint."""
    plan = scene.plan()
    for stage in plan.sweep.stages:
        finish(scene.folder(stage), checkpoint=stage.kind == "prepare-data")
    return plan


def inputs(run: Run) -> list[tuple[str, str, str]]:
    """The name, the context and the source of each dataset of a run."""
    return [
        (one.dataset.name, one.tags[0].value, json.loads(one.dataset.source)["uri"])
        for one in run.inputs.dataset_inputs
    ]


def test_a_run_has_the_data_that_its_stage_reads(scene: Scene) -> None:
    plan = all_done(scene)
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


def test_the_digest_is_that_of_the_tokens(scene: Scene) -> None:
    plan = all_done(scene)
    scene.tracker.project(plan)
    stage = of(plan, "pretrain")
    [data] = scene.run(stage).inputs.dataset_inputs
    digest = output_digest(scene.store.folder("prepare-data", stage.parents["data.0"]))
    assert digest is not None
    assert digest.startswith(data.dataset.digest)
    assert len(data.dataset.digest) == 36
