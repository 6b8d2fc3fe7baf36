"""Analyses in a report: drawn from the store's arrays, or told why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_samples import make_report, write_plan

from fope_lab.analysis.base import ARRAYS
from fope_lab.analysis.decay import Decay
from fope_lab.evaluation.context import run
from fope_lab.report import Report
from fope_lab.report.render.documents import render_html, render_markdown
from fope_lab.report.render.figures import draw_analyses, draw_figures, shown_number
from fope_lab.report.render.json import report_json
from fope_lab.store import Store
from fope_lab.sweep import Plan

DECAY = {"type": "decay", "length": 32, "pairs": 3, "head_dim": 8}
STAGES = {"decay": {"kind": "analysis", "analysis": DECAY}}


def plan_of(folder: Path, **changes: object) -> Plan:
    return write_plan(folder, {"stages": STAGES, "grid": {}, "seeds": [0], **changes})


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
    assert (shown["stage"], shown["analysis"], shown["key"]) == (
        "decay",
        "decay",
        result.stage.key,
    )
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
