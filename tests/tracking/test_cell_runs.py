"""The cells of a report as runs of MLflow: means and intervals over seeds, which a query finds."""

from __future__ import annotations

import dataclasses
import statistics

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from tracking_scene import Scene, measure, of

from fope_lab.orchestration.sweep_report import tracked_report
from fope_lab.orchestration.tracked_cells import tracked_cells
from fope_lab.sweep import Plan
from fope_lab.tracking.cells import CellRecord
from fope_lab.tracking.experiment import Run as OpenRun
from fope_lab.tracking.links import VIEW
from fope_lab.tracking.names import WIDTH
from fope_lab.tracking.prepared_views import prepared_views
from fope_lab.tracking.view import Outline

LENGTHS = (64, 128, 256)
T_975 = {2: 12.70620, 3: 4.30265}
"""Student's t for the 95 % interval of n values, from a table."""


def value(embedding: str | None, seed: int | None, length: int) -> float:
    return length / 10 + (seed or 0) ** 2 + 5 * (embedding == "nope")


def do(scene: Scene, plan: Plan, skip: tuple[int, ...] = ()) -> None:
    """Do all stages but the evaluations of some seeds, and send the report."""
    for stage in plan.sweep.stages:
        folder = scene.folder(stage)
        if folder.is_done() or (stage.kind == "perplexity" and stage.seed in skip):
            continue
        if stage.kind == "perplexity":
            measure(folder, {x: value(stage.embedding, stage.seed, x) for x in LENGTHS})
        else:
            measure(folder, {})
    keep(scene, plan)
    scene.tracker.project(plan)


def keep(scene: Scene, plan: Plan) -> list[CellRecord]:
    cells = tracked_cells(tracked_report(plan.sweep, scene.store, scene.tracker))
    scene.tracker.keep_report(plan, [], {}, cells)
    return cells


def query(scene: Scene, filters: str) -> list[Run]:
    client = MlflowClient(tracking_uri=scene.uri)
    experiment = client.get_experiment_by_name("first")
    return list(client.search_runs([experiment.experiment_id], filters))


def cell_of(scene: Scene, embedding: str = "rope") -> Run:
    [run] = query(scene, f"tags.kind = 'cell' and tags.embedding = '{embedding}'")
    return run


def numbers(run: Run, length: int) -> list[float]:
    ends = ("", "_stderr", "_ci95_low", "_ci95_high", "_n")
    return [run.data.metrics[f"perplexity{end}/{length}"] for end in ends]


def wanted(seeds: tuple[int, ...], length: int) -> list[float]:
    values = [value("rope", seed, length) for seed in seeds]
    mean, error = statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5
    half = T_975[len(seeds)] * error
    return [mean, error, mean - half, mean + half, len(seeds)]


def test_a_query_finds_means_and_intervals(scene: Scene) -> None:
    plan = scene.plan(seeds="0, 1, 2")
    do(scene, plan)
    assert len(query(scene, "tags.kind = 'cell'")) == 2
    run = cell_of(scene)
    for length in LENGTHS:
        assert numbers(run, length) == pytest.approx(wanted((0, 1, 2), length), rel=1e-4)
    curve = {step: mean for name, step, _, mean in scene.points(run) if name.endswith("_by_length")}
    assert {x: float(mean) for x, mean in curve.items()} == {
        x: pytest.approx(wanted((0, 1, 2), x)[0]) for x in LENGTHS
    }
    assert run.info.run_name == "rope perplexity n=3"
    assert (run.data.tags["n"], run.data.tags["seeds"]) == ("3", "0, 1, 2")
    assert run.data.params["pretrain.embedding"] == run.data.params["embedding"] == "rope"
    assert "seed" not in run.data.params
    assert run.info.status == "FINISHED"


def test_a_cell_and_its_members_lead_to_each_other(scene: Scene) -> None:
    plan = scene.plan(seeds="0, 1")
    do(scene, plan)
    cell, members = cell_of(scene), query(scene, "tags.embedding = 'rope' and tags.seed != ''")
    members = [run for run in members if run.data.tags["kind"] == "perplexity"]
    page = f"#/experiments/{cell.info.experiment_id}/runs"
    for run in members:
        seed, note = run.data.tags["seed"], run.data.tags["mlflow.note.content"]
        to_cell = f"- cell: [rope perplexity n=2]({page}/{cell.info.run_id}?{VIEW})"
        assert f"Mean over seeds:\n\n{to_cell}" in note
        assert note.startswith("Made from:\n\n- from: [")
        to_member = f"- seed {seed}: [{run.info.run_name}]({page}/{run.info.run_id}?{VIEW})"
        assert to_member in cell.data.tags["mlflow.note.content"]
    found = query(scene, f"tags.cell = '{cell.data.tags['key']}'")
    assert {run.info.run_id for run in found} == {run.info.run_id for run in members}
    assert not query(scene, "tags.kind = 'pretrain' and tags.cell != ''")


def test_seeds_that_are_added_leave_one_run_with_the_new_mean(scene: Scene) -> None:
    do(scene, scene.plan(seeds="0, 1"))
    before = cell_of(scene)
    do(scene, scene.plan(seeds="0, 1, 2"), skip=(2,))
    assert cell_of(scene).data.tags["missing"] == "perplexity[embedding=rope,seed=2]"
    scene.restart()
    do(scene, scene.plan(seeds="0, 1, 2"))
    now = cell_of(scene)
    assert now.data.tags["key"] == before.data.tags["key"]
    assert "missing" not in now.data.tags
    assert numbers(now, 64) == pytest.approx(wanted((0, 1, 2), 64), rel=1e-4)
    for _ in range(2):  # nothing is doubled, and every link is to the run that is there
        points = scene.points(now)
        assert len(points) == len(LENGTHS) * 2 * 5
        scene.restart().sync()
        assert scene.points(cell_of(scene)) == points
    for stage in scene.plan(seeds="0, 1, 2").sweep.stages:
        if stage.kind == "perplexity" and stage.embedding == "rope":
            assert now.info.run_id in scene.run(stage).data.tags["mlflow.note.content"]


def test_an_upload_that_was_killed_is_finished_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.plan(seeds="0, 1")
    do(scene, plan)
    points = scene.points(cell_of(scene))
    for run in query(scene, "tags.kind = 'cell'"):
        MlflowClient(tracking_uri=scene.uri).delete_run(run.info.run_id)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OpenRun, "set_status", killed)  # after the points have arrived
        with pytest.raises(KeyboardInterrupt):
            scene.restart().sync()
    assert scene.restart().sync() == ["first"]
    assert len(query(scene, "tags.kind = 'cell'")) == 2
    assert scene.points(cell_of(scene)) == points
    monkeypatch.setattr(MlflowClient, "log_batch", lambda *_, **__: pytest.fail("sent again"))
    scene.restart().sync()


def test_a_cell_that_the_sweep_no_longer_has_is_removed(scene: Scene) -> None:
    do(scene, scene.plan(seeds="0, 1"))
    do(scene, scene.plan(seeds="0, 1", embeddings="rope"))
    assert [run.data.tags["embedding"] for run in query(scene, "tags.kind = 'cell'")] == ["rope"]


def test_a_single_seed_has_a_mean_without_an_interval(scene: Scene) -> None:
    do(scene, scene.plan())
    run = cell_of(scene)
    assert run.info.run_name == "rope perplexity n=1"
    assert run.data.metrics["perplexity/64"] == value("rope", 0, 64)
    assert run.data.metrics["perplexity_n/64"] == 1
    assert not any("stderr" in name or "ci95" in name for name in run.data.metrics)


def test_a_value_that_is_not_finite_leaves_no_mean(scene: Scene) -> None:
    plan = scene.plan(embeddings="rope", seeds="0, 1")
    for stage in plan.sweep.stages:
        broken = float("nan") if stage.seed == 1 else 3.0
        if stage.kind == "perplexity":
            measure(scene.folder(stage), {64: broken, 128: 2.0})
    keep(scene, plan)
    scene.tracker.project(plan)
    run = cell_of(scene)
    assert run.data.tags["non_finite"] == "perplexity_by_length at 64"
    assert "perplexity/64" not in run.data.metrics
    assert run.data.metrics["perplexity_n/64"] == run.data.metrics["perplexity/128"] == 2.0


def test_a_description_of_a_user_stays(scene: Scene) -> None:
    do(scene, scene.plan(seeds="0, 1"))
    client = MlflowClient(tracking_uri=scene.uri)
    client.set_tag(cell_of(scene).info.run_id, "mlflow.note.content", "my words")
    scene.restart()
    do(scene, scene.plan(seeds="0, 1, 2"))
    assert cell_of(scene).data.tags["mlflow.note.content"] == "my words"


def test_damaged_cells_are_left_alone_until_the_next_report(scene: Scene) -> None:
    plan = scene.plan(seeds="0, 1")
    do(scene, plan)
    [path] = scene.store.root.glob("tracking/sweeps/*/cells.json")
    path.write_text('[{"measured": 3}]')
    assert scene.restart().without_cells() == ["first"]
    scene.tracker.sync()
    assert len(query(scene, "tags.kind = 'cell'")) == 2
    keep(scene, plan)
    assert scene.tracker.without_cells() == []


def test_the_views_show_cells_in_a_table_of_their_own(scene: Scene) -> None:
    plan = scene.plan(seeds="0, 1")
    do(scene, plan)
    outline = Outline.of(plan, {})
    metrics = {
        run.data.tags["key"]: tuple(run.data.metrics) for run in query(scene, "tags.key != ''")
    }
    views = {view.name: view.state for view in prepared_views(outline, metrics)}
    assert views["means"]["searchFilter"] == "tags.kind = 'cell' AND tags.edition = 'current'"
    columns = views["means"]["selectedColumns"]
    assert columns[:4] == ["tags.`stage`", "tags.`embedding`", "tags.`n`", columns[3]]
    assert columns[3:6] == [f"metrics.`perplexity{e}/64`" for e in ("", "_ci95_low", "_ci95_high")]
    for name in ("perplexity", "results"):
        assert "tags.kind != 'cell'" in views[name]["searchFilter"]
        assert not any("ci95" in column for column in views[name]["selectedColumns"])


def test_names_fit_whatever_the_number_of_seeds(scene: Scene) -> None:
    plan = scene.plan(embeddings="{type: fope, sigma: 0.3}, {type: fope, sigma: 0.25}", seeds="0")
    do(scene, plan)
    stage = of(plan, "perplexity", "fope(sigma=0.3)")
    [record, *_] = keep(scene, plan)
    many = dataclasses.replace(record, measured=(stage.key,) * 12)
    scene.tracker.keep_report(plan, [], {}, [many])
    scene.tracker.project(plan)
    [run] = query(scene, "tags.kind = 'cell'")
    assert run.info.run_name.endswith(" n=12")
    assert len(run.info.run_name) <= WIDTH
