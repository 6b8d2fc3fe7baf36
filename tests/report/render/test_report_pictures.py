"""The heat maps and the analyses of a report: means over seeds; what is odd or damaged is told."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_samples import BASE, finish, make_report, write_plan

from fope_lab.analysis.decay import Decay
from fope_lab.evaluation.context import run
from fope_lab.evaluation.retrieval import Answered, by_depth, depth_heatmaps
from fope_lab.report import Report
from fope_lab.report.render.documents import render_html, render_markdown
from fope_lab.report.render.figures import draw_analyses, draw_figures, draw_heatmaps, shown_number
from fope_lab.report.render.json import report_json
from fope_lab.report.results.recorded import group_heatmaps
from fope_lab.stages.metric import ARRAYS, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import Plan
from fope_lab.sweep.graph import Stage

NEEDLE = {"kind": "needle", "from": "pretrain", "lengths": [32, 64], "depths": 3, "trials": 2}
STAGES = {"pretrain": BASE["stages"]["pretrain"], "needle": {**NEEDLE, "form": "symbolic"}}
MAP: dict[str, Any] = {
    "title": "Needle accuracy by depth and context length",
    "metric": "needle_accuracy",
    "x_label": "context length, tokens",
    "y_label": "depth",
    "x": [32, 64],
    "y": [0, 50.5, 100],
    "values": [[1.0, 0.5], [0.75, 0.25], [0.5, None]],
    "low": 0.0,
    "high": 1.0,
}


def report_of(
    folder: Path, store: Store, maps: Any = None, skip: str = "", **changes: object
) -> Report:
    """A report whose needles left what `maps` makes of a stage, by default MAP."""
    plan = write_plan(folder, {"stages": STAGES} | changes)
    for stage in plan.sweep.stages:
        if stage.label == skip:
            continue
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            drawn = (maps(stage) if maps else [MAP]) if stage.kind == "needle" else []
            attempt.finish(ResultRecord(heatmaps=tuple(drawn)).as_json())
    return make_report(plan, store)


def test_a_panel_for_each_line_with_the_mean_over_seeds(tmp_path: Path, store: Store) -> None:
    def maps(stage: Stage) -> list[dict[str, Any]]:
        values = [[stage.seed, 0.5], [0.25, stage.embedding == "rope"], [1.0, 1.0]]
        return [{**MAP, "values": values}]

    report = report_of(tmp_path, store, maps, seeds=[0, 1])
    [figure] = [f for f in draw_figures(report) if f.natural]
    assert figure.title == "Needle accuracy by depth and context length"
    assert figure.notes == ("Means over 2 seeds.",)
    assert len(figure.drawings) == 4
    for embedding, drawing in zip(("nope", "alibi", "rope", "fope"), figure.drawings, strict=True):
        words = re.findall(r">([^<]+)</text>", drawing)
        assert embedding in words
        mean = "1.00" if embedding == "rope" else "0.00"
        numbers = [word for word in words if re.fullmatch(r"\d\.\d\d", word)]
        assert numbers == ["0.50", "0.50", "0.25", mean, "1.00", "1.00"]
        assert {"32", "64", "0", "50.5", "100", "depth", "context length, tokens"} <= set(words)
    given = report_json(report)["heatmaps"]
    assert json.loads(json.dumps(given, allow_nan=False)) == given
    assert [one["axes"]["pretrain.embedding"] for one in given] == ["nope", "alibi", "rope", "fope"]
    assert given[2]["values"] == [[0.5, 0.5], [0.25, 1.0], [1.0, 1.0]]
    assert (given[2]["n"], given[2]["x"], given[2]["stage"]) == (2, [32, 64], "needle")
    assert 'class="natural"' in render_html(report)


def test_what_is_missing_leaves_a_gap(tmp_path: Path, store: Store) -> None:
    report = report_of(tmp_path, store, seeds=[3], grid={"pretrain.embedding": ["rope"]})
    [figure] = [f for f in draw_figures(report) if f.natural]
    assert figure.notes == ("One seed.",)
    assert len(re.findall(r">\d\.\d\d</text>", figure.drawings[0])) == 5
    [given] = report_json(report)["heatmaps"]
    assert given["values"] == MAP["values"]


def test_stages_that_are_not_done_have_none(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": ["rope", "nope"]}
    skip = "needle[embedding=nope,seed=1]"
    report = report_of(tmp_path, store, skip=skip, seeds=[0, 1], grid=grid)
    [figure] = [f for f in draw_figures(report) if f.natural]
    assert len(figure.drawings) == 2
    assert figure.notes == ("Means over 1 or 2 seeds.",)


@pytest.mark.parametrize(
    "odd",
    [
        {"x": [32, 128]},
        {"values": [[1.0, 0.5]]},
        {"values": [[1.0, 0.5], [1.0], [1.0, 0.0]]},
        {"values": [[1.0, "x"]]},
        {"high": math.nan},
    ],
)
def test_a_map_unlike_the_others_is_told_and_left_out(
    tmp_path: Path, store: Store, odd: dict[str, Any]
) -> None:
    def maps(stage: Stage) -> list[dict[str, Any]]:
        return [{**MAP, **odd} if stage.seed == 1 else MAP]

    grid = {"pretrain.embedding": ["rope"]}
    report = report_of(tmp_path, store, maps, seeds=[0, 1], grid=grid)
    [figure] = [f for f in draw_figures(report) if f.natural]
    assert any("needle[embedding=rope,seed=1] is damaged" in note for note in figure.notes)
    assert report_json(report)["heatmaps"][0]["n"] == 1


def test_stages_with_the_same_map_are_told_apart(tmp_path: Path, store: Store) -> None:
    stages = {**STAGES, "n": {**STAGES["needle"], "trials": 3}}
    report = report_of(tmp_path, store, stages=stages, seeds=[0])
    titles = [f.title for f in draw_figures(report) if f.natural]
    assert titles == [f"{MAP['title']} (needle)", f"{MAP['title']} (n)"]


RIGHT = {64: [True, True, False, True], 512: [False, False, True, True]}
PLACES = {64: [0.02, 0.04, 0.51, 0.99], 512: [0.03, 0.55, 0.56, 0.91]}


def kept(lengths: list[int]) -> dict[str, Any]:
    """What an evaluation keeps of four trials at each length."""
    results = [Answered(n, np.array(RIGHT[n]), PLACES[n]) for n in lengths]
    return {"by_depth": {str(result.length): by_depth(result) for result in results}}


def test_rows_are_depths_and_columns_lengths() -> None:
    [heatmap] = depth_heatmaps(kept([512, 64]))
    assert heatmap["x"] == [64, 512]
    assert heatmap["y"] == [5.0, 55.0, 95.0]
    assert heatmap["values"] == [[1.0, 0.0], [0.0, 0.5], [1.0, 1.0]]


@pytest.mark.parametrize(
    "details",
    [{}, {"by_depth": 3}, {"by_depth": {"x": []}}, {"by_depth": {"64": [{"depth": None}]}}],
)
def test_other_details_have_no_heat_map(details: dict[str, Any]) -> None:
    assert depth_heatmaps(details) == []


def test_the_report_draws_the_mean_over_seeds(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0, 1], "grid": {"pretrain.embedding": ["rope"]}})
    finish(plan, store, skip=[s.label for s in plan.sweep.stages if s.kind == "passkey"])
    for stage in plan.sweep.stages:
        if stage.kind == "passkey":
            record = ResultRecord(details=kept([64, 512]))
            with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
                attempt.finish(record.as_json())
    [group] = group_heatmaps(make_report(plan, store).stages)
    [mean] = group.maps
    assert mean.seeds == 2
    assert mean.values.tolist() == [[1.0, 0.0], [0.0, 0.5], [1.0, 1.0]]
    [figure] = draw_heatmaps([group])
    assert figure.title == "Passkey accuracy by depth and context length"
    assert "depth of the key, %" in figure.drawings[0]


DECAY = {"type": "decay", "length": 32, "pairs": 3, "head_dim": 8}
MODELS = {"decay": {"kind": "analysis", "analysis": DECAY}}


def plan_of(folder: Path, **changes: object) -> Plan:
    return write_plan(folder, {"stages": MODELS, "grid": {}, "seeds": [0], **changes})


def done(plan: Plan, store: Store) -> Report:
    for stage in plan.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.finish(run(stage.spec, attempt.writer, {}))  # type: ignore[arg-type]
    return make_report(plan, store)


def test_a_figure_with_what_the_paper_says_and_the_numbers(tmp_path: Path, store: Store) -> None:
    report = done(plan_of(tmp_path), store)
    [figure] = draw_figures(report)
    [result] = report.stages
    [decay] = report.analyses
    assert figure.title == "decay"
    analysis = result.stage.spec.analysis  # type: ignore[attr-defined]
    assert figure.notes[:2] == (f"{analysis.source}.", f"The paper: {analysis.says}")
    assert decay.numbers == result.record.numbers
    near = f"{decay.numbers['constant_near']:.4g}"
    words = (
        "mean score of constant queries and keys, nearest eighth of the distances, score / head_dim"
    )
    assert (words, near) in figure.numbers
    assert len(figure.numbers) == len(decay.numbers)
    assert f"| {words} | {near} |" in render_markdown(report)
    [shown] = report_json(report)["analyses"]
    assert (shown["stage"], shown["analysis"], shown["key"]) == ("decay", "decay", result.stage.key)
    assert shown["numbers"] == decay.numbers
    assert "Constant queries and keys" in figure.drawings[0]
    assert set(decay.arrays()) == {"constant", "gaussian"}
    page = render_html(report)
    assert "The paper: Scores of constant queries and keys decay" in page
    assert page.count("<svg") == 1
    assert re.search(rf">{words}</th><td>{re.escape(near)}</td>", page)


def test_no_number_of_an_analysis_is_a_metric(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decay, "numbers", lambda self, arrays: {"decay_loss": 0.5})
    report = done(plan_of(tmp_path), store)
    assert report.cells == ()
    [result] = report.stages
    assert (result.record.metrics, result.record.numbers) == ((), {"decay_loss": 0.5})


def test_axes_tell_figures_apart(tmp_path: Path, store: Store) -> None:
    stages: dict[str, Any] = {"scores": {"kind": "analysis", "analysis": DECAY}}
    plan = plan_of(tmp_path, stages=stages, grid={"scores.analysis.pairs": [3, 4]})
    titles = [figure.title for figure in draw_figures(done(plan, store))]
    assert titles == ["decay (scores): pairs 3", "decay (scores): pairs 4"]


def test_an_analysis_that_is_not_done_has_no_figure(tmp_path: Path, store: Store) -> None:
    assert draw_figures(make_report(plan_of(tmp_path), store)) == []


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "other arrays", "other shapes"])
def test_damaged_arrays_are_told(tmp_path: Path, store: Store, damage: str) -> None:
    plan = plan_of(tmp_path)
    report = done(plan, store)
    folder = store.folder(plan.sweep.stages[0].kind, plan.sweep.stages[0].key)
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    path = checkpoint.path / ARRAYS
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other arrays":
        np.savez(path, something=np.zeros(3))
    elif damage == "other shapes":
        np.savez(path, constant=np.zeros(5), gaussian=np.zeros((3, 2)))
    [figure] = draw_analyses(report.analyses)
    assert figure.drawings == ()
    assert figure.notes[-1].startswith("Not drawn: ")
    assert str(path.parents[2]) in figure.notes[-1]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.25, "0.25"),
        (-0.001296, "−0.001296"),
        (7852.0, "7,852"),
        (1048576.0, "1,048,576"),
        (0.0, "0"),
    ],
)
def test_a_number_is_written_as_people_write_it(number: float, text: str) -> None:
    assert shown_number(number) == text
