"""What an older version sent is brought up to the form of today, and nothing is doubled."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from mlflow import MlflowClient
from tracking_scene import Scene, measure, of

from fope_lab.sweep.graph import Stage
from fope_lab.tracking.experiment import Run as OpenRun
from fope_lab.tracking.points import Point

CURVE = {64: 9.5, 128: 11.25, 256: 80.0}


def make_old(scene: Scene, stage: Stage) -> None:
    """Leave of a stage's run, and of its record, what the first version sent and recorded."""
    run = scene.run(stage)
    client = MlflowClient(tracking_uri=scene.uri)
    client.set_tag(run.info.run_id, "mlflow.runName", stage.label)
    for tag in ("label", "mlflow.source.name", "mlflow.source.type"):
        client.delete_tag(run.info.run_id, tag)
    with closing(sqlite3.connect(scene.store.root / "mlflow.db")) as database, database:
        for table in ("metrics", "latest_metrics"):
            database.execute(f"DELETE FROM {table} WHERE key LIKE '%/%'")
        database.execute("DELETE FROM params WHERE key IN ('embedding', 'pretrain.embedding')")
    for path in scene.folder(stage).path.glob("tracking/*.json"):
        record = json.loads(path.read_text())
        names = ("experiment_id", "run_id", "complete")
        path.write_text(json.dumps({name: record[name] for name in names}))


def test_sync_brings_an_old_upload_up_to_date(scene: Scene) -> None:
    plan = scene.plan()
    stage = of(plan, "perplexity")
    measure(scene.folder(stage), CURVE)
    scene.tracker.project(plan)
    wanted, points = scene.run(stage), scene.points(scene.run(stage))
    make_old(scene, stage)
    old = scene.run(stage)
    assert old.info.run_name == stage.label
    assert old.data.metrics.keys() == {"perplexity_by_length", "perplexity_by_length_stderr"}
    assert "embedding" not in old.data.params
    for _ in range(2):
        assert scene.restart().sync() == ["first"]
        now = scene.run(stage)
        assert now.info.run_id == old.info.run_id
        assert now.info.run_name == "rope perplexity"
        assert (now.data.tags, now.data.params) == (wanted.data.tags, wanted.data.params)
        assert scene.points(now) == points
    assert now.data.metrics == {
        "perplexity_by_length": 80.0,
        "perplexity_by_length_stderr": 0.5,
        **{f"perplexity/{x}": value for x, value in CURVE.items()},
    }


def test_an_old_upload_is_completed_without_reading_what_mlflow_has(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.plan()
    stage = of(plan, "perplexity")
    measure(scene.folder(stage), CURVE)
    scene.tracker.project(plan)
    points = scene.points(scene.run(stage))
    make_old(scene, stage)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_metric_history", lambda *_: pytest.fail("was read"))
        scene.restart().sync()
    assert scene.points(scene.run(stage)) == points


def test_a_completion_that_was_killed_is_finished_from_what_mlflow_has(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.plan()
    stage = of(plan, "perplexity")
    measure(scene.folder(stage), CURVE)
    scene.tracker.project(plan)
    points = scene.points(scene.run(stage))
    make_old(scene, stage)
    real = OpenRun.log

    def killed(run: OpenRun, sent: Sequence[Point], *rest: Any) -> None:
        real(run, sent[:1], {}, {})  # of the metrics with new names, the first alone arrives
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OpenRun, "log", killed)
        with pytest.raises(KeyboardInterrupt):
            scene.restart().sync()
    assert len(scene.points(scene.run(stage))) < len(points)
    scene.restart().sync()
    assert scene.points(scene.run(stage)) == points
