"""The views that a sweep's experiment opens with, as MLflow stores them; a browser shows them in
test_tracking_server.py."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from tracking_scene import Scene

from fope_lab.orchestration.run_sweeps import ReportOfSweep
from fope_lab.sweep import Plan
from fope_lab.tracking.outline import Outline
from fope_lab.tracking.prepared_views import MOST_COLUMNS, TAG, View, prepared_views
from fope_lab.tracking.ui import view_lines

LENGTHS = ("perplexity_by_length", *(f"perplexity/{length}" for length in (64, 128, 1024)))


def views_of(plan: Plan, metrics: dict[str, tuple[str, ...]]) -> dict[str, View]:
    """The views by name, of a sweep whose stages have these metrics, by kind."""
    outline = Outline.of(plan, {})
    logged = {stage.key: metrics.get(stage.kind, ()) for stage in outline.stages}
    return {view.name: view for view in prepared_views(outline, logged)}


def stored(scene: Scene) -> dict[str, tuple[str, dict[str, Any]]]:
    """The id and the state of the views in MLflow, by their names."""
    experiment = MlflowClient(tracking_uri=scene.uri).get_experiment_by_name("first")
    found = {}
    for name, value in experiment.tags.items():
        if name.startswith(TAG):
            content = json.loads(value)
            packed = content["state"].removeprefix("deflate;")
            state = json.loads(zlib.decompress(base64.b64decode(packed)))
            found[content["name"]] = (name.removeprefix(TAG), state)
    return found


def test_a_curve_is_a_chart_over_the_logarithm_of_the_length(scene: Scene) -> None:
    state = views_of(scene.plan(), {"perplexity": LENGTHS})["perplexity"].state
    assert state["searchFilter"] == ("tags.stage = 'perplexity' AND tags.edition = 'current'")
    [chart] = state["compareRunCharts"]
    assert (chart["metricKey"], chart["type"]) == ("perplexity_by_length", "LINE")
    assert (chart["xAxisKey"], chart["xAxisScaleType"]) == ("step", "log")
    assert chart["scaleType"] == "log"
    assert not state["runListHidden"]  # it names every line, as MLflow's legend does not
    [section] = [one for one in state["compareRunSections"] if one["display"]]
    assert chart["metricSectionId"] == section["uuid"]
    folded = {one["name"] for one in state["compareRunSections"] if not one["display"]}
    assert folded == {"perplexity", "Model metrics"}
    assert state["groupBy"] == {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "tag", "groupByData": "line"}],
    }


def test_a_training_is_drawn_over_its_steps_and_single_numbers_as_bars(scene: Scene) -> None:
    names = ("gradient_norm", "least_validation_loss", "loss", "validation_loss")
    views = views_of(scene.plan(), {"pretrain": names, "perplexity": ("accuracy", "accuracy_n")})
    charts = views["pretrain"].state["compareRunCharts"]
    assert [(chart["metricKey"], chart["type"]) for chart in charts] == [
        ("loss", "LINE"),
        ("validation_loss", "LINE"),
        ("least_validation_loss", "BAR"),
        ("gradient_norm", "LINE"),
    ]
    assert charts[0]["xAxisScaleType"] == "linear"
    [number] = views["perplexity"].state["compareRunCharts"]
    assert (number["type"], number["metricKey"]) == ("BAR", "accuracy")


def test_the_table_has_what_varies_and_what_was_measured(scene: Scene) -> None:
    view = views_of(scene.plan(), {"pretrain": ("loss",), "perplexity": LENGTHS})["results"]
    assert view.mode == "TABLE"
    assert view.state["selectedColumns"] == [
        "tags.`stage`",
        "tags.`embedding`",
        "tags.`seed`",
        *(f"metrics.`perplexity/{length}`" for length in (64, 128, 1024)),
    ]
    assert view.state["searchFilter"] == (
        "tags.kind != 'prepare-data' AND tags.kind != 'pretrain'"
        " AND tags.kind != 'summary' AND tags.edition = 'current'"
    )


def test_other_axes_are_columns_and_split_the_lines(scene: Scene) -> None:
    plan = scene.plan(grid="pretrain.train.learning_rate: [1e-3, 3e-3]")
    views = views_of(plan, {"perplexity": LENGTHS})
    assert views["perplexity"].state["groupBy"]["groupByKeys"] == [
        {"mode": "tag", "groupByData": "line"}
    ]
    state = views["results"].state
    columns = state["selectedColumns"]
    # Parameters are last, so that a number is to be seen.
    assert state["columnOrder"] == [*columns[:3], *columns[4:], columns[3]]
    assert columns[3].startswith("params.")
    assert "params.`pretrain.train.learning_rate`" in columns


@pytest.mark.parametrize(
    ("copies", "title"), [(50, "perplexity"), (51, "perplexity, 100 of 102 runs")]
)
def test_a_chart_of_more_runs_than_mlflow_loads_says_so(
    scene: Scene, copies: int, title: str
) -> None:
    outline = Outline.of(scene.plan(), {})
    evaluations = [stage for stage in outline.stages if stage.kind == "perplexity"]
    assert len(evaluations) == 2
    stages = tuple(
        dataclasses.replace(stage, key=f"{stage.key}-{seed}", seed=seed)
        for stage in evaluations
        for seed in range(copies)
    )
    many = dataclasses.replace(outline, stages=stages)
    [view, _] = prepared_views(many, {stage.key: LENGTHS for stage in stages})
    assert (view.name, view.title) == ("perplexity", title)
    by_seed = view.state["orderByKey"] == "tags.`seed`"  # so that the first have every line
    assert by_seed == (copies > 50)


def test_a_perplexity_comes_before_the_loss_that_says_the_same(scene: Scene) -> None:
    names = ("loss_by_length", "loss/64", *LENGTHS)
    views = views_of(scene.plan(), {"perplexity": names})
    charts = views["perplexity"].state["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts] == ["perplexity_by_length", "loss_by_length"]
    assert [chart["scaleType"] for chart in charts] == ["log", "linear"]
    assert views["results"].state["selectedColumns"][-2:] == [
        "metrics.`perplexity/1024`",
        "metrics.`loss/64`",
    ]


def test_many_metrics_leave_a_view_that_mlflow_takes(scene: Scene) -> None:
    names = tuple(f"a-task-with-a-long-name-{i}_accuracy" for i in range(3000))
    for view in views_of(scene.plan(), {"perplexity": names}).values():
        assert len(view.state["selectedColumns"]) == MOST_COLUMNS
        assert len(view.tag(1)[1]) < 20_000


def test_a_run_makes_the_views_and_another_replaces_them(scene: Scene) -> None:
    plan = scene.all_done()
    scene.tracker.project(plan)
    before = stored(scene)
    assert before.keys() == {"pretrain", "perplexity", "results"}
    assert before["perplexity"][1]["compareRunCharts"][0]["metricKey"] == "perplexity_by_length"
    scene.restart().project(scene.plan("first", "rope, nope, alibi"))
    after = stored(scene)
    assert {name: found[0] for name, found in after.items()} == {
        name: found[0] for name, found in before.items()
    }


def test_a_filter_finds_the_runs_of_its_section(scene: Scene) -> None:
    plan = scene.all_done()
    scene.tracker.project(plan)
    client = MlflowClient(tracking_uri=scene.uri)
    [experiment] = {run.info.experiment_id for run in scene.runs()}
    for name, (_, state) in stored(scene).items():
        found = client.search_runs(
            [experiment],
            filter_string=state["searchFilter"],
            order_by=[f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"],
        )
        section = "perplexity" if name == "results" else name
        assert [run.data.tags["stage"] for run in found] == [section] * 2
        for column in state["selectedColumns"]:
            kind, _, key = column.partition(".")
            assert all(key.strip("`") in getattr(run.data, kind) for run in found), column


def test_a_server_that_takes_no_views_does_no_harm(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = scene.all_done()

    def refused(*_: object) -> None:
        raise MlflowException("too long", INVALID_PARAMETER_VALUE)

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refused)
    scene.tracker.project(plan)
    assert stored(scene) == {}
    assert len(scene.runs()) == len(plan.sweep.stages)


def test_the_report_links_to_the_views(scene: Scene) -> None:
    plan = scene.all_done()
    assert ReportOfSweep(plan.sweep, scene.store, scene.tracker).report.links.views == {}
    scene.tracker.project(plan)
    links = ReportOfSweep(plan.sweep, scene.store, scene.restart()).report.links.views
    assert links.keys() == {"pretrain", "perplexity", "results"}
    [experiment] = {run.info.experiment_id for run in scene.runs()}
    view_id = stored(scene)["perplexity"][0]
    assert links["perplexity"] == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs"
        f"?compareRunsMode=CHART&viewStateShareKey={view_id}&workflowType=machine_learning"
    )


def test_ui_prints_a_line_for_each_view(scene: Scene) -> None:
    scene.tracker.project(scene.all_done())
    lines = list(view_lines(scene.store.root, "http://here:1"))
    assert [line.split(": ")[0] for line in lines] == [
        "  first, pretrain",
        "  first, perplexity",
        "  first, results",
    ]
    assert "http://here:1/#/experiments/" in lines[1]
