"""The run `summary` says what the sweep is, how its claims came out, and where its results are."""

from __future__ import annotations

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from tracking_scene import Scene, finish, measure

from fope_lab.orchestration.sweep_report import tracked_report
from fope_lab.report.numbers import report_numbers
from fope_lab.sweep import Plan
from fope_lab.tracking.description import TAG
from fope_lab.tracking.links import VIEW
from fope_lab.tracking.summary_description import summary_description

CLAIMS = """
report:
  claims:
    - "perplexity@64: rope < nope"
    - "perplexity@64: nope < rope"
    - "perplexity@128: rope < nope"
    - "perplexity@64: rope < 100"
    - "perplexity@64: rope < 101"
"""
VALUES = {"rope": 9.0, "nope": 20.0}


def do(scene: Scene, plan: Plan) -> Plan:
    """Do the stages, and send a report with its claims."""
    for stage in plan.sweep.stages:
        folder = scene.folder(stage)
        if folder.is_done():
            continue
        if stage.kind == "perplexity":
            value, seed = VALUES[str(stage.embedding)], (stage.seed or 0) / 100
            # At 64 each embedding has a spread of its own: without one, three seeds decide nothing.
            measure(folder, {64: value + seed * value, 128: 5.0 + seed})
        else:
            finish(folder)
    report = tracked_report(plan.sweep, scene.store, scene.tracker)
    page = scene.root / "report.html"
    page.write_text(f"{len(plan.sweep.stages)} stages")
    scene.report(plan, [page], report_numbers(report))
    return plan


def with_claims(scene: Scene) -> Plan:
    """Two embeddings under three seeds: three claims hold, one fails, one is undecided."""
    scene.plan(seeds="0, 1, 2")
    return scene.plan_of((scene.root / "first.yaml").read_text() + CLAIMS)


def summary(scene: Scene) -> Run:
    [run] = [run for run in scene.runs() if run.data.tags["kind"] == "summary"]
    return run


def note(scene: Scene) -> str:
    return summary(scene).data.tags[TAG]


def test_the_summary_says_what_came_out_and_leads_to_views_and_report(scene: Scene) -> None:
    plan = do(scene, with_claims(scene))
    run = summary(scene)
    experiment = f"#/experiments/{run.info.experiment_id}/runs"
    pages = scene.tracker.view_links("first", "")
    assert list(pages) == ["pretrain", "perplexity", "results"]
    views = [f"[{name}]({page.removeprefix('/')})" for name, page in pages.items()]
    report = f"{experiment}/{run.info.run_id}/artifacts/report.html?{VIEW}"
    assert note(scene).splitlines() == [
        plan.sweep.description,
        "",
        "Claims: 3 hold, 1 fails, 1 undecided.  ",
        f"Report: [report.html]({report})  ",
        f"Prepared views: {', '.join(views)}",
    ]
    client = MlflowClient(tracking_uri=scene.uri)
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["report.html"]
    assert "http" not in note(scene)


def test_the_description_follows_the_report_and_the_sweep(scene: Scene) -> None:
    do(scene, scene.plan(seeds="0, 1, 2"))
    assert "Claims" not in note(scene)
    do(scene, with_claims(scene))
    assert "Claims: 3 hold" in note(scene)
    text = (scene.root / "first.yaml").read_text()
    do(scene, scene.plan_of(text.replace("Two embeddings.", "Two *other* ones.")))
    assert note(scene).startswith("Two *other* ones.\n\n")


def test_sync_describes_what_an_older_version_sent(scene: Scene) -> None:
    do(scene, with_claims(scene))
    before, run = note(scene), summary(scene).info.run_id
    for tag in (TAG, "described"):
        MlflowClient(tracking_uri=scene.uri).delete_tag(run, tag)
    scene.restart().sync()
    assert note(scene) == before


@pytest.mark.parametrize("text", ["The one for the paper.", "", "Two embeddings."])
def test_what_a_user_wrote_stays(scene: Scene, text: str) -> None:
    do(scene, scene.plan(seeds="0, 1, 2"))
    MlflowClient(tracking_uri=scene.uri).set_tag(summary(scene).info.run_id, TAG, text)
    scene.restart()
    do(scene, with_claims(scene))
    assert note(scene) == text


def test_a_user_may_write_before_we_do(scene: Scene) -> None:
    do(scene, scene.plan())
    run = summary(scene).info.run_id
    client = MlflowClient(tracking_uri=scene.uri)
    client.set_tag(run, TAG, "my words")
    client.delete_tag(run, "described")
    scene.restart().sync()
    assert note(scene) == "my words"


def test_a_long_description_and_many_views_leave_a_tag_that_mlflow_takes() -> None:
    query = f"compareRunsMode=CHART&viewStateShareKey=fope-lab-{'0' * 16}"
    page = f"#/experiments/{10**18}/runs?{query}"
    pages = {f"section {i}": page for i in range(200)}
    run = f"#/experiments/{10**18}/runs/{'0' * 32}"
    text = summary_description("word " * 5_000, {"claims_not_trained": 1.0}, pages, run)
    assert len(text) < 8_000
    assert "Claims: 1 not trained." in text
    assert text.endswith(")")


def test_names_of_views_are_shown_as_they_are() -> None:
    text = summary_description("", {}, {"my_[view]_*": "#/experiments/1/runs?a=b"}, "#/run")
    assert "Prepared views: [my\\_\\[view\\]\\_\\*](#/experiments/1/runs?a=b&" in text


def test_no_report_leaves_nothing_to_describe(scene: Scene) -> None:
    plan = scene.plan()
    for stage in plan.sweep.stages:
        finish(scene.folder(stage))
    scene.tracker.project(plan)
    assert all(run.data.tags["kind"] != "summary" for run in scene.runs())
