"""The description of a run links to the runs that it was made from; what a user wrote stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from tracking_scene import Scene, finish, of

from fope_lab.tracking.description import CELL, PARENTS, TAG, Link, description, is_of_user
from fope_lab.tracking.links import VIEW


def test_a_run_links_to_the_runs_of_its_parents(scene: Scene) -> None:
    plan = scene.plan()
    for stage in plan.sweep.stages:
        finish(scene.folder(stage))
    scene.tracker.project(plan)
    trained, prepared = of(plan, "pretrain"), of(plan, "prepare-data", None)
    run = scene.run(of(plan, "perplexity"))
    links = [line for line in run.data.tags[TAG].splitlines() if line.startswith("- ")]
    pages = f"#/experiments/{run.info.experiment_id}/runs"
    page = f"{pages}/{scene.run(trained).info.run_id}?{VIEW}"
    assert f"- from: [rope pretrain]({page})" in links
    assert len(links) == len(of(plan, "perplexity").parents)
    assert TAG not in scene.run(prepared).data.tags


@pytest.mark.parametrize("text", ["The one for the paper.", "", "Made from:\n\n- from: a guess"])
def test_what_a_user_wrote_stays(scene: Scene, text: str) -> None:
    plan = scene.plan()
    stage = of(plan, "perplexity")
    finish(scene.folder(of(plan, "pretrain")))
    with scene.folder(stage).begin("test", {}):
        scene.tracker.project(plan)
    run = scene.run(stage)
    ours = run.data.tags[TAG]
    MlflowClient(tracking_uri=scene.uri).set_tag(run.info.run_id, TAG, text)
    scene.restart().project(plan)
    finish(scene.folder(stage))
    scene.restart().project(plan)
    assert scene.run(stage).data.tags[TAG] == text != ours


def test_a_link_follows_a_parent_whose_run_was_made_again(scene: Scene) -> None:
    plan = scene.plan()
    for stage in plan.sweep.stages:
        finish(scene.folder(stage))
    scene.tracker.project(plan)
    parent = scene.run(of(plan, "pretrain")).info.run_id
    MlflowClient(tracking_uri=scene.uri).delete_run(parent)
    scene.restart().project(plan)
    again = scene.run(of(plan, "pretrain")).info.run_id
    text = scene.run(of(plan, "perplexity")).data.tags[TAG]
    assert again in text
    assert parent not in text


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=20)
ROLES = st.sampled_from(["from", "tokenizer", "data.0", "validation.12"])


LINKS = st.lists(st.builds(Link, ROLES, NAMES, st.from_regex("[0-9a-f]{32}", fullmatch=True)))


@given(parents=LINKS, cell=LINKS)
def test_what_was_made_here_is_known_again(parents: list[Link], cell: list[Link]) -> None:
    text = description("12", {PARENTS: parents, CELL: cell})
    assert (text is None) == (not parents and not cell)
    if text is not None:
        assert not is_of_user(text)
        assert not is_of_user(text.replace(f"?{VIEW}", ""))  # as earlier versions wrote it
        assert is_of_user(f"{text}\n\nThis one diverged.")
