"""The runs of what a sweep no longer has stay, and are told from those of the sweep as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from tracking_scene import Scene, finish, measure

from fope_lab.sweep import Plan
from fope_lab.tracking.ledger import recorded_sweeps
from fope_lab.tracking.prepared_views import TAG, prepared_views

RATES = "pretrain.train.learning_rate: [2e-3, 5e-4]"


def do(scene: Scene, plan: Plan) -> Plan:
    """Do all stages that are not done, and send the report."""
    for stage in plan.sweep.stages:
        folder = scene.folder(stage)
        if folder.is_done():
            continue
        if stage.kind == "pretrain":
            finish(folder)
        else:
            measure(folder, {64: 9.0, 128: 12.0} if stage.kind == "perplexity" else {})
    scene.report(plan, {}, {})
    return plan


def editions(scene: Scene) -> dict[str, str]:
    """The tag of the runs of all stages, by their keys."""
    return {
        run.data.tags["key"]: run.data.tags["edition"]
        for run in scene.runs()
        if run.data.tags["kind"] != "summary"
    }


def stages(scene: Scene, edition: str) -> set[str]:
    """The keys of the stages whose runs have the tag."""
    return {key for key, tag in editions(scene).items() if tag == edition}


def keys(plan: Plan) -> set[str]:
    return {stage.key for stage in plan.sweep.stages}


def shown(scene: Scene, view: str) -> list[Run]:
    """The runs that a prepared view finds."""
    [outline] = [one for one in recorded_sweeps(scene.store) if one.name == "first"]
    metrics = {run.data.tags.get("key", ""): tuple(run.data.metrics) for run in scene.runs()}
    [found] = [one for one in prepared_views(outline, metrics) if one.name == view]
    client = MlflowClient(tracking_uri=scene.uri)
    [experiment] = {run.info.experiment_id for run in scene.runs()}
    return list(client.search_runs([experiment], found.state["searchFilter"]))


@pytest.mark.parametrize("process", ["the same", "another"])
def test_what_is_edited_away_is_earlier_until_it_is_edited_back(scene: Scene, process: str) -> None:
    both = do(scene, scene.plan(seeds="0, 1"))
    assert set(editions(scene).values()) == {"current"}
    assert len(shown(scene, "perplexity")) == 4
    if process == "another":
        scene.restart()
    one = do(scene, scene.plan(seeds="0, 1", embeddings="rope"))
    assert stages(scene, "current") == keys(one)
    assert stages(scene, "earlier") == keys(both) - keys(one)
    for view in ("pretrain", "perplexity", "results"):
        assert {run.data.tags["embedding"] for run in shown(scene, view)} == {"rope"}
    if process == "another":
        scene.restart()
    do(scene, scene.plan(seeds="0, 1"))
    assert set(editions(scene).values()) == {"current"}
    assert len(shown(scene, "perplexity")) == 4


def test_all_seeds_of_a_setting_have_one_line(scene: Scene) -> None:
    def lines() -> Counter[str]:
        return Counter(run.data.tags["line"] for run in shown(scene, "perplexity"))

    do(scene, scene.plan(seeds="0, 1", grid=RATES))
    assert lines() == {"rope 2e-3": 2, "rope 5e-4": 2, "nope 2e-3": 2, "nope 5e-4": 2}
    do(scene, scene.plan(seeds="0, 1"))  # of a sweep with fewer axes, they have shorter names
    assert lines() == {"rope": 2, "nope": 2}


def test_the_runs_of_another_store_are_left_alone(
    scene: Scene, second_scene: Callable[[str], Scene]
) -> None:
    other = second_scene(scene.uri)
    other.root.mkdir()
    do(scene, scene.plan())
    both = do(other, other.plan())
    one = do(scene, scene.plan(embeddings="rope"))
    found: dict[str, dict[str, str]] = {}
    for run in scene.runs():
        key = run.data.tags.get("key", "summary")
        found.setdefault(run.data.tags["store"], {})[key] = run.data.tags["edition"]
    mine = found.pop((scene.store.root / "tracking" / "id").read_text())
    [others] = found.values()
    assert set(others.values()) == {"current"}
    assert {key for key, tag in mine.items() if tag == "earlier"} == keys(both) - keys(one)


def test_what_is_of_the_sweep_again_but_not_done_is_current(scene: Scene) -> None:
    do(scene, scene.plan())
    one = do(scene, scene.plan(embeddings="rope"))
    both = scene.plan()
    for stage in both.sweep.stages:
        if stage.key not in keys(one):
            scene.folder(stage).set_aside("test")
    scene.tracker.project(scene.plan())
    assert set(editions(scene).values()) == {"current"}


def test_a_view_of_a_section_that_the_sweep_no_longer_has_goes(scene: Scene) -> None:
    def views() -> int:
        experiment = MlflowClient(tracking_uri=scene.uri).get_experiment_by_name("first")
        return sum(name.startswith(TAG) for name in experiment.tags)

    do(scene, scene.plan())
    assert views() == 3
    text = (scene.root / "first.yaml").read_text()
    without = "\n".join(line for line in text.splitlines() if "kind: perplexity" not in line)
    do(scene, scene.plan_of(without))
    assert scene.tracker.view_links("first").keys() == {"pretrain"}
    assert views() == 1
    do(scene, scene.plan())
    assert views() == 3
