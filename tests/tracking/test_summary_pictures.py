"""The pictures of a report on the run `summary`: drawn and sent when they are new."""

from __future__ import annotations

import pytest
from mlflow import MlflowClient
from tracking_scene import Scene

PICTURE = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def pictures_of(scene: Scene) -> dict[str, bytes]:
    """The pictures that MLflow has."""
    [run] = [run for run in scene.runs() if run.data.tags["kind"] == "summary"]
    artifacts = scene.store.root / "mlartifacts" / "first" / run.info.run_id / "artifacts"
    return {file.name: file.read_bytes() for file in (artifacts / "figures").iterdir()}


def test_pictures_are_drawn_and_sent_when_they_show_something_new(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.plan()
    drawn = {"loss.svg": PICTURE, "perplexity.svg": PICTURE + b"<!-- 1 -->"}
    scene.tracker.keep_pictures(plan, "one", lambda: drawn)
    scene.report(plan, [], {})
    assert pictures_of(scene) == drawn
    scene.tracker.keep_pictures(plan, "one", lambda: pytest.fail("drawn again"))
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifact", lambda *_: pytest.fail("sent again"))
        scene.restart().project(plan)
    newer = drawn | {"loss.svg": PICTURE + b"<!-- 2 -->"}
    scene.tracker.keep_pictures(plan, "two", lambda: newer)
    scene.tracker.project(plan)
    assert pictures_of(scene) == newer


def test_a_picture_that_the_report_no_longer_has_goes(scene: Scene) -> None:
    plan = scene.plan()
    old = {"loss.svg": PICTURE, "perplexity.svg": PICTURE}
    scene.tracker.keep_pictures(plan, "one", lambda: old)
    scene.report(plan, [], {})
    new = {"loss.svg": PICTURE + b"<!-- 2 -->"}
    scene.tracker.keep_pictures(plan, "two", lambda: new)
    scene.restart().project(plan)
    assert pictures_of(scene) == new
    [kept] = scene.store.root.glob("tracking/sweeps/*/figures/*")
    assert kept.name == "loss.svg"


def test_pictures_that_the_store_has_lost_are_drawn_again(scene: Scene) -> None:
    plan = scene.plan()
    scene.tracker.keep_pictures(plan, "one", lambda: {"loss.svg": PICTURE})
    [path] = scene.store.root.glob("tracking/sweeps/*/figures/loss.svg")
    path.unlink()
    scene.tracker.keep_pictures(plan, "one", lambda: {"loss.svg": PICTURE})
    assert path.read_bytes() == PICTURE
