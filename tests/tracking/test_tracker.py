"""MLflow ends up with what the store holds, each point once, whatever happens on the way."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from tracking_scene import Scene, expected, finish, of, write_nothing

from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.attempt import Attempt
from fope_lab.store.folder import StageFolder
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.experiment import Experiment
from fope_lab.tracking.tracker import Tracker


def test_one_run_a_stage_however_often_it_is_projected(scene: Scene) -> None:
    plan = scene.plan()
    for stage in plan.sweep.stages:
        scene.tracker.project(plan)
        finish(scene.folder(stage))
        scene.tracker.project(plan)
    scene.restart().project(scene.plan())
    scene.tracker.project(scene.plan())
    runs = scene.runs()
    assert sorted(run.data.tags["key"] for run in runs) == sorted(s.key for s in plan.sweep.stages)
    for stage in plan.sweep.stages:
        assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def test_a_stage_that_was_re_run_goes_up_again(scene: Scene) -> None:
    plan, stage = scene.planned()
    for loss in (3.0, 2.5):
        scene.folder(stage).set_aside("test")
        with scene.folder(stage).begin("test", {}) as attempt:
            attempt.writer.log(1, {"loss": loss})
            attempt.finish({})
        scene.tracker.project(plan)
        assert [row.values["loss"] for row in scene.folder(stage).rows()] == [loss]
        assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def test_the_figure_that_a_stage_leaves_goes_up_with_it(scene: Scene) -> None:
    plan, stage = scene.planned("perplexity")

    def draw(directory: Path) -> None:
        (directory / "figure.svg").write_text("<svg/>")
        (directory / "arrays.npz").write_bytes(b"no picture")

    with scene.folder(stage).begin("test", {}) as attempt:
        attempt.writer.save_checkpoint(0, draw)
        scene.tracker.project(plan)
        assert scene.files(stage) == []
        attempt.finish({})
    scene.tracker.project(plan)
    assert scene.files(stage) == ["figure.svg"]


def test_a_run_tells_what_the_stage_is(scene: Scene) -> None:
    plan, stage = scene.planned("perplexity")
    finish(scene.folder(stage))
    scene.tracker.project(plan)
    run = scene.run(stage)
    assert run.info.run_name == "rope perplexity"
    wanted = {
        "sweep.first": "true",
        "stage": "perplexity",
        "label": "perplexity[embedding=rope,seed=0]",
        "kind": "perplexity",
        "embedding": "rope",
        "seed": "0",
        "key": stage.key,
        "state": "done",
        "cached": "false",
        "axis.pretrain.embedding": "rope",
        "parent.from": stage.parents["from"],
    }
    assert wanted.items() <= run.data.tags.items()
    assert "scale" not in run.data.tags  # the sweep file gives none
    assert run.data.params["lengths"] == "[64, 128, 256]"
    assert run.data.params["pretrain.embedding"] == run.data.params["embedding"] == "rope"
    assert run.data.tags["mlflow.source.name"] == str(scene.root / "first.yaml")
    assert run.data.params["corpus.type"] == "python-docs"
    client = MlflowClient(tracking_uri=scene.uri)
    experiment = client.get_experiment(run.info.experiment_id)
    assert experiment.tags["mlflow.note.content"] == "Two embeddings."


def test_status_and_times_are_the_stores(scene: Scene) -> None:
    plan, stage = scene.planned()
    folder = scene.folder(stage)
    with folder.begin("test", {}):
        scene.tracker.project(plan)
        assert scene.run(stage).info.status == "RUNNING"
    scene.tracker.project(plan)
    assert scene.run(stage).info.status == "KILLED"
    with pytest.raises(ValueError, match="no data"), folder.begin("test", {}):
        raise ValueError("no data")
    scene.tracker.project(plan)
    failed = scene.run(stage)
    assert failed.info.status == "FAILED"
    assert failed.data.tags["error"] == "no data"
    with folder.begin("test", {}) as attempt:
        scene.tracker.project(plan)
        assert scene.run(stage).info.status == "RUNNING"
        attempt.finish({})
    scene.tracker.project(plan)
    done = scene.run(stage)
    assert (done.info.status, done.data.tags["state"]) == ("FINISHED", "done")
    assert "error" not in done.data.tags
    assert done.data.tags["time"].endswith(" s over 3 attempts")
    assert "time" not in failed.data.tags
    assert done.info.run_id == failed.info.run_id
    assert done.info.start_time == int(folder.started_at() * 1000)
    assert done.info.end_time == int(folder.finished_at() * 1000)


def test_a_lease_that_was_freed_without_a_time_counts_as_interrupted(scene: Scene) -> None:
    plan, stage = scene.planned()
    attempt = scene.folder(stage).begin("test", {})
    (scene.folder(stage).path / "attempts" / "0001.end").write_text('{"outcome": "interrupted"}')
    scene.tracker.project(plan)
    assert scene.run(stage).info.status == "KILLED"
    attempt.__exit__(None, None, None)


def test_a_stage_that_nobody_began_has_no_run(scene: Scene) -> None:
    plan = scene.plan()
    scene.tracker.project(plan)
    assert scene.runs() == []
    assert scene.run_ids(plan) == {}


def test_the_result_adds_what_the_rows_do_not_have(scene: Scene) -> None:
    plan, stage = scene.planned("perplexity")
    values = {64: 9.5, 128: 11.25}
    measured = [
        Measurement(name="perplexity_by_length", x=x, value=value, stderr=0.5, ci95=(8.0, 12.5))
        for x, value in values.items()
    ]
    with scene.folder(stage).begin("test", {}) as attempt:
        for one in measured:
            attempt.writer.log(one.x or 0, one.row)
            scene.tracker.project(plan)
        attempt.finish(ResultRecord(metrics=tuple(measured)).as_json())
    scene.tracker.project(plan)
    run = scene.run(stage)
    assert {name: run.data.metrics[name] for name in ("perplexity/64", "perplexity/128")} == {
        f"perplexity/{x}": value for x, value in values.items()
    }
    sent = {(name, step): value for name, step, _, value in scene.points(run)}
    assert len(sent) == len(scene.points(run))
    curves = {"": values, "_stderr": 0.5, "_ci95_low": 8.0, "_ci95_high": 12.5}
    assert {point: value for point, value in sent.items() if "/" not in point[0]} == {
        (f"perplexity_by_length{end}", x): repr(curve[x] if isinstance(curve, dict) else curve)
        for end, curve in curves.items()
        for x in values
    }


def test_what_is_not_finite_is_a_gap_and_a_tag(scene: Scene) -> None:
    plan, stage = scene.planned("perplexity")
    with scene.folder(stage).begin("test", {}) as attempt:
        attempt.writer.log(64, {"perplexity_by_length": 9.5})
        attempt.writer.log(128, {"perplexity_by_length": math.inf})
        attempt.writer.log(256, {"perplexity_by_length": math.nan})
        attempt.finish({})
    scene.tracker.project(plan)
    scene.restart().project(plan)
    run = scene.run(stage)
    curve = [point[3] for point in scene.points(run) if point[0] == "perplexity_by_length"]
    assert curve == ["9.5", "nan", "nan"]
    assert run.data.tags["non_finite"] == (
        "perplexity_by_length=inf at 128, perplexity_by_length=nan at 256"
    )


def test_a_stage_that_can_not_go_up_holds_up_no_other(scene: Scene) -> None:
    plan = scene.plan()
    bad, good = of(plan, "pretrain"), of(plan, "pretrain", "nope")
    finish(scene.folder(bad), checkpoint=True)
    checkpoint = scene.folder(bad).final_checkpoint()
    assert checkpoint is not None
    (checkpoint.path / "figure.svg").symlink_to("a file that is gone")
    finish(scene.folder(good))
    for _ in range(2):
        with pytest.raises(TrackingError, match=r"pretrain.*rope"):
            scene.tracker.project(plan)
    assert scene.points(scene.run(good)) == expected(scene.folder(good).rows())


CHANGES = (
    *("create_run", "log_batch", "set_tag", "delete_tag", "set_terminated", "update_run"),
    *("log_artifact", "log_text", "log_inputs", "log_outputs", "get_metric_history"),
    *("create_logged_model", "finalize_logged_model", "set_logged_model_tags"),
    *("set_experiment_tag", "delete_experiment_tag"),
)


def test_nothing_is_sent_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models, a stage that had failed, a sweep that was edited, and a report with a figure."""
    _, stage = scene.planned()
    with pytest.raises(ValueError, match="no data"), scene.folder(stage).begin("test", {}):
        raise ValueError("no data")
    scene.tracker.project(scene.all_done())
    plan = scene.plan(embeddings="rope")
    scene.report(plan, {"figures/loss.svg": b"<svg/>"}, {("holds",): 1.0})
    for name in CHANGES:
        monkeypatch.setattr(MlflowClient, name, lambda *_, **__: pytest.fail("was sent again"))
    database = scene.store.root / "mlflow.db"
    before = database.read_bytes()
    scene.tracker.project(plan)
    scene.restart().project(plan)
    scene.restart().sync()
    assert database.read_bytes() == before


def test_sweeps_that_share_a_stage_have_a_run_each(scene: Scene) -> None:
    first = scene.plan("first", "rope")
    scene.tracker.project(first)  # planned: nothing is cached
    stage = of(first, "pretrain")
    finish(scene.folder(stage))
    scene.tracker.project(first)
    second = scene.plan("second", "rope, nope")
    assert stage.key in {s.key for s in second.sweep.stages}
    scene.tracker.project(second)
    finish(scene.folder(of(second, "pretrain", "nope")))
    scene.tracker.project(second)
    scene.restart()
    scene.tracker.project(scene.plan("first", "rope"))  # everything is in the store by now
    scene.tracker.project(scene.plan("second", "rope, nope"))
    one, other = scene.run(stage, "first"), scene.run(stage, "second")
    assert one.info.experiment_id != other.info.experiment_id
    assert scene.points(one) == scene.points(other) == expected(scene.folder(stage).rows())
    assert (one.data.tags["cached"], other.data.tags["cached"]) == ("false", "true")
    assert scene.run(of(second, "pretrain", "nope"), "second").data.tags["cached"] == "false"


def test_two_stores_in_one_mlflow_keep_to_their_own_runs(
    scene: Scene, second_scene: Callable[[str], Scene]
) -> None:
    other = second_scene(scene.uri)
    _, stage = scene.planned()
    for place, steps in ((scene, 3), (other, 4)):
        finish(place.folder(stage), steps)
        place.tracker.project(place.plan())
    for place in (scene, other):
        place.restart().project(place.plan())
    found = sorted(scene.points(run) for run in scene.runs())
    assert found == sorted(expected(p.folder(stage).rows()) for p in (scene, other))


def test_two_processes_on_one_store_make_no_second_run(scene: Scene) -> None:
    plan = scene.plan()
    here, there = scene.tracker, Tracker(scene.store.root, scene.uri)
    for stage in plan.sweep.stages:
        here.project(plan)
        finish(scene.folder(stage))
        there.project(plan)
        here.project(plan)
    assert len(scene.runs()) == len(plan.sweep.stages)


def test_a_run_that_was_made_twice_by_a_timeout_is_one_again(scene: Scene) -> None:
    plan, stage = scene.sent()
    run = scene.run(stage)
    MlflowClient(tracking_uri=scene.uri).create_run(
        run.info.experiment_id, start_time=run.info.start_time, tags=run.data.tags
    )
    assert len(scene.runs()) == 2
    scene.restart().project(plan)
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def test_runs_and_experiments_deleted_in_mlflow_come_back(scene: Scene) -> None:
    plan, stage = scene.sent()
    run = scene.run(stage)
    client = MlflowClient(tracking_uri=scene.uri)
    client.delete_run(run.info.run_id)
    scene.restart().project(plan)
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())
    client.delete_experiment(run.info.experiment_id)
    scene.tracker.project(plan)
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def test_sync_needs_no_sweep_file_and_fills_another_mlflow(
    scene: Scene, empty_database: Path
) -> None:
    for name, embeddings in (("first", "rope, nope"), ("second", "rope")):
        plan = scene.plan(name, embeddings)
        scene.finish(plan)
        scene.tracker.project(plan)
        (scene.root / f"{name}.yaml").unlink()
    scene.uri = f"sqlite:///{shutil.copy(empty_database, scene.root / 'other.db')}"
    assert scene.restart().sync() == ["first", "second"]
    for name in ("first", "second"):
        for run in scene.runs(name):
            folder = scene.store.folder(run.data.tags["kind"], run.data.tags["key"])
            assert scene.points(run) == expected(folder.rows())
    assert (len(scene.runs("first")), len(scene.runs("second"))) == (6, 4)


def test_tags_that_a_user_edits_or_removes_are_mended(scene: Scene) -> None:
    plan, stage = scene.planned()
    finish(scene.folder(stage))
    scene.report(plan, {"report.html": b"<p>one</p>"}, {("holds",): 1.0})
    client = MlflowClient(tracking_uri=scene.uri)
    before = {run.info.run_id: run.data.tags for run in scene.runs()}
    [summary] = [run for run in scene.runs() if run.data.tags["kind"] == "summary"]
    client.set_tag(summary.info.run_id, "kind", "mine")
    client.set_tag(scene.run(stage).info.run_id, "kind", "summary")
    scene.restart().project(plan)
    assert {run.info.run_id: run.data.tags for run in scene.runs()} == before

    client.delete_tag(scene.run(stage).info.run_id, "key")
    scene.restart().project(plan)
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())
    assert summary.info.run_id in {run.info.run_id for run in scene.runs()}


IMPORTS = """
import sys, threading
from fope_lab.store.root import Store
from fope_lab.tracking.tracker import Tracker, TrackingThread

class Recorder:
    def find_spec(self, name, path=None, target=None):
        importing.setdefault(threading.current_thread().name, []).append(name)

importing = {}
sys.meta_path.insert(0, Recorder())
thread = TrackingThread(Tracker(Store.create(sys.argv[1]).root, None), [])
thread.start()
ready = "mlflow" in sys.modules
thread.flush()
print(ready, "mlflow" in importing["MainThread"], importing.get("fope-lab-tracking"))
"""


def test_the_thread_that_starts_tracking_imports_mlflow(tmp_path: Path) -> None:
    """Ray Tune imports it on the main thread. Where two threads import a package of modules that
    import each other, Python may raise a deadlock error in one of them, which ended a run.
    """
    command = [sys.executable, "-c", IMPORTS, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "True True None\n", done.stderr


BEST = Measurement(name="best", value=0.5, ci95=(0.25, 0.75))
"""What only the result of the stage says."""
ACTIONS = (
    *("rows", "rows", "checkpoint", "checkpoint", "interrupt", "damage", "project", "project"),
    *("new process", "lose record", "old record", "request lost", "answer lost"),
)


class Chaos:
    """One stage at work, and everything that can go wrong with it or with MLflow."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scene, self.monkeypatch = scene, monkeypatch
        plan = scene.plan()
        self.stage = of(plan, "pretrain")
        only = dataclasses.replace(plan.sweep, stages=(self.stage,))
        self.plan = dataclasses.replace(plan, sweep=only)
        self.folder: StageFolder = scene.folder(self.stage)
        self.attempt: Attempt = self.begin()
        self.old_record = b""

    def begin(self) -> Attempt:
        time.sleep(0.002)  # a repeated step never has the timestamp that it had before
        attempt = self.folder.begin("test", {})
        self.step = attempt.writer.resumed_from.step if attempt.writer.resumed_from else 0
        return attempt

    def do(self, action: str) -> None:
        getattr(self, action.replace(" ", "_"))()

    def rows(self) -> None:
        for _ in range(2):
            self.step += 1
            self.attempt.writer.log(self.step, {"loss": 1.0 / self.step, "x": float(self.step)})

    def checkpoint(self) -> None:
        self.attempt.writer.save_checkpoint(self.step, write_nothing)

    def interrupt(self) -> None:
        self.attempt.__exit__(None, None, None)
        self.attempt = self.begin()

    def damage(self) -> None:
        newest = self.folder.checkpoint()
        if newest is not None:
            (newest.path / "model").write_bytes(b"")
        self.interrupt()

    def project(self) -> None:
        try:
            self.scene.tracker.project(self.plan)
        except TrackingError as error:
            if "on purpose" not in str(error):
                raise

    def new_process(self) -> None:
        self.scene.restart()

    def records(self) -> list[Path]:
        return list(self.folder.path.glob("tracking/*.json"))

    def lose_record(self) -> None:
        for record in self.records():
            record.unlink()

    def old_record_(self) -> None:
        for record in self.records():
            self.old_record, before = record.read_bytes(), self.old_record
            if before:
                record.write_bytes(before)

    def fail(self, arrives: bool) -> None:
        """The next projection's first change doesn't reach the server, or its answer is lost."""
        for name in ("create_run", "log_batch"):
            real = getattr(MlflowClient, name)

            def broken(*args: Any, real: Any = real, **kwargs: Any) -> None:
                if arrives:
                    real(*args, **kwargs)
                raise RuntimeError("broken on purpose")

            self.monkeypatch.setattr(MlflowClient, name, broken)
        self.project()
        self.monkeypatch.undo()

    def request_lost(self) -> None:
        self.fail(arrives=False)

    def answer_lost(self) -> None:
        self.fail(arrives=True)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(actions=["rows", "checkpoint", "rows", "project"], ends=False)
@example(actions=["rows", "project", "checkpoint", "answer lost", "damage"], ends=False)
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=25), ends=st.booleans())
def test_mlflow_has_every_durable_point_once_after_any_history(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, actions: list[str], ends: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=scene.root) as root:
        chaos = Chaos(Scene(Path(root), scene.uri), monkeypatch)
        for action in actions:
            chaos.do("old_record_" if action == "old record" else action)
        with chaos.attempt as attempt:
            if ends:
                attempt.finish(ResultRecord(metrics=(BEST,)).as_json())
        chaos.project()
        rows = chaos.folder.rows()
        (run,) = [
            run
            for run in chaos.scene.runs()
            if run.data.tags["store"] == chaos.scene.tracker._ledger.store_id()
        ]
        assert run.info.status == ("FINISHED" if ends else "KILLED")
        sent = chaos.scene.points(run)
        assert [point for point in sent if not point[0].startswith("best")] == expected(rows)
        at_the_end = {point[0]: point[3] for point in sent if point[0].startswith("best")}
        best = {"best": "0.5", "best_ci95_low": "0.25", "best_ci95_high": "0.75"}
        assert at_the_end == (best if ends else {})
        steps = [point[:2] for point in chaos.scene.points(run)]
        assert len(steps) == len(set(steps))
        assert chaos.scene.run_ids(chaos.plan) == {chaos.stage.key: run.info.run_id}


def test_a_finished_sweep_is_one_question_until_something_changes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To load its runs would take seconds. Only `sync` asks for each, so as to restore one."""
    plan = scene.all_done()
    scene.tracker.project(plan)
    loaded = counted_loads(monkeypatch)
    scene.restart().project(plan)
    assert not loaded
    lost = scene.runs()[0]
    MlflowClient(tracking_uri=scene.uri).delete_run(lost.info.run_id)
    scene.tracker.sync()
    assert len(scene.runs()) == len(plan.sweep.stages)
    loaded.clear()
    done = scene.folder(plan.sweep.stages[0]).paths.done
    text = done.read_bytes()
    done.unlink()
    done.write_bytes(text)
    scene.restart().project(plan)
    assert len(loaded) == 1


def counted_loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The experiments whose runs are loaded from now on."""
    loaded: list[str] = []
    load = Experiment.load

    def counting(experiment: Experiment) -> None:
        loaded.append(experiment.experiment_id)
        load(experiment)

    monkeypatch.setattr(Experiment, "load", counting)
    return loaded
