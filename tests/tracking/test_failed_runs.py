"""The log of a failed stage is on its run, where whoever looks at MLflow finds the reason."""

from __future__ import annotations

import pytest
from mlflow import MlflowClient
from tracking_scene import Scene, finish, of

from fope_lab.store import StageFolder
from fope_lab.tracking import upload


def fail(folder: StageFolder, error: str) -> None:
    with pytest.raises(ValueError, match=error), folder.begin("test", {}):
        raise ValueError(error)


def log_of(scene: Scene, run_id: str) -> str:
    artifacts = scene.store.root / "mlartifacts" / "first" / run_id / "artifacts"
    return (artifacts / "log.txt").read_text()


def test_each_failure_sends_the_log_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = scene.plan()
    stage = of(plan, "pretrain")
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


def test_the_log_of_a_stage_that_succeeded_in_the_end_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(MlflowClient, "log_text", lambda *_, **__: pytest.fail("sent again"))
    scene.restart().project(plan)


def test_only_the_end_of_a_long_log_is_sent(scene: Scene) -> None:
    plan = scene.plan()
    stage = of(plan, "pretrain")
    fail(scene.folder(stage), "x" * 3 * upload.LOG_BYTES + "the end")
    scene.tracker.project(plan)
    first, _, text = log_of(scene, scene.run(stage).info.run_id).partition("\n")
    whole = scene.folder(stage).paths.log.read_text()
    assert len(text) == upload.LOG_BYTES
    assert whole.endswith(text)
    assert first == f"({len(whole) - len(text):,} bytes before this are only in the store.)"


def test_a_failure_without_a_log_is_sent_without_it(scene: Scene) -> None:
    plan = scene.plan()
    stage = of(plan, "pretrain")
    fail(scene.folder(stage), "no data")
    scene.folder(stage).paths.log.unlink()
    scene.tracker.project(plan)
    assert scene.run(stage).info.status == "FAILED"
    assert scene.files(stage) == []
