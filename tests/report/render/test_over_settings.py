"""Tables and figures over a training's setting, and what reports say of rates and of choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, finish, make_report, write_plan

from fope_lab.config.roles import SELECTED
from fope_lab.report import Report
from fope_lab.report.build import build_report
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import Table, report_tables
from fope_lab.stages.internal import MEANS, Select
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import Plan

RATE = "pretrain.train.learning_rate"
RATES = [1e-3, 2e-3, 4e-3]
BEST = {"rope": 2e-3, "alibi": 4e-3}
PRETRAIN = BASE["stages"]["pretrain"]
TRAIN = {**PRETRAIN["train"], "validate_every": 10, "validation_part": "first-half"}


def stages(*, selects: bool) -> dict[str, Any]:
    rule = {"select": {"over": "train.learning_rate"}} if selects else {}
    return {
        "pretrain": {**PRETRAIN, "train": TRAIN, **rule},
        "perplexity": {**BASE["stages"]["perplexity"], "part": "second-half"},
    }


def loss_of(stage: Stage) -> float:
    """Least at the embedding's best rate; seeds differ a little."""
    embedding, rate = stage.embedding or "", stage.axes.get(RATE, TRAIN["learning_rate"])
    away = abs(math.log2(rate / BEST[embedding]))
    return 2.0 + 0.1 * away + 0.3 * (embedding == "rope") + 0.01 * (stage.seed or 0)


def work(plan: Plan, store: Store) -> None:
    """Finish every stage; a training measures a validation loss, a selection takes BEST."""
    for stage in plan.sweep.stages:
        folder = store.folder(stage.kind, stage.key)
        if isinstance(stage.spec, Select):
            value = BEST[stage.embedding or ""]
            recorded = {
                SELECTED: {"value": value, "index": RATES.index(value)},
                MEANS: [{"value": str(rate), "validation_loss": 1.0} for rate in RATES],
            }
            record = ResultRecord(numbers={"selected_learning_rate": value}, recorded=recorded)
        elif stage.spec.trains:
            names = ("loss", "validation_loss", "least_validation_loss")
            losses = (Measurement(name=name, value=loss_of(stage)) for name in names)
            record = ResultRecord(metrics=tuple(losses))
        else:
            continue
        with folder.begin("test", {"config": stage.config}) as attempt:
            attempt.finish(record.as_json())

    def numbers(stage: Stage, length: int | None) -> float:
        return math.exp(2.0 + 0.3 * (stage.embedding == "rope") + 0.01 * (stage.seed or 0))

    finish(plan, store, numbers)


def report_of(folder: Path, *, selects: bool = True, **changes: Any) -> Report:
    grid = {"pretrain.embedding": ["rope", "alibi"], RATE: RATES}
    folder.mkdir(exist_ok=True)
    plan = write_plan(folder, {"stages": stages(selects=selects), "grid": grid, **changes})
    store = Store.create(folder / "store")
    work(plan, store)
    return make_report(plan, store)


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a sweep that selects each embedding's rate."""
    return report_of(tmp_path_factory.mktemp("selected") / "report")


def table(report: Report, title: str) -> Table:
    return next(one for one in report_tables(report) if one.title == title)


def test_the_chosen_value_of_each_row_is_marked(selected: Report) -> None:
    found = table(selected, "Validation loss by learning rate (pretrain)")
    assert [column.label for column in found.columns] == ["0.001", "0.002", "0.004"]
    chosen = {row.labels: [entry.chosen for entry in row.entries] for row in found.rows}
    assert chosen == {("rope",): [False, True, False], ("alibi",): [False, False, True]}
    assert any("optimistic" in note for note in found.notes)
    assert (
        "Chosen is the largest value of alibi: a better one may lie beyond the grid." in found.notes
    )
    texts = {row.labels[0]: [entry.text for entry in row.entries] for row in found.rows}
    assert texts["rope"][1].startswith("2.310 ± ")
    assert not found.has_best


def test_methods_with_one_value_each_have_no_table(tmp_path: Path) -> None:
    pairs = {"pretrain.embedding": ["rope", "alibi"], RATE: [2e-3, 4e-3]}
    report = report_of(tmp_path, selects=False, grid={}, zip=pairs)
    titles = [one.title for one in report_tables(report)]
    assert "Loss (pretrain)" in titles
    assert not any("by learning rate" in title for title in titles)


def test_the_chosen_models_own_validation_loss_is_said_to_be_optimistic(
    selected: Report, tmp_path: Path
) -> None:
    notes = table(selected, "Loss (pretrain)").notes
    assert any("validation loss of a model that select chose is optimistic" in n for n in notes)
    plain = table(report_of(tmp_path / "plain", selects=False), "Loss (pretrain)").notes
    assert not any("optimistic" in note for note in plain)


def test_rows_at_their_own_best_say_so(selected: Report) -> None:
    notes = table(selected, "Perplexity").notes
    chosen = "chosen by validation loss: rope 0.002, alibi 0.004."
    assert f"Each at its own best learning rate, {chosen}" in notes
    assert not any("not each at its best" in note for note in notes)


def test_a_table_says_if_one_row_had_more_candidates(selected: Report, tmp_path: Path) -> None:
    even = table(selected, "Perplexity").notes
    assert not any("candidates" in note for note in even)
    without = [{"pretrain.embedding": "rope", RATE: RATES[-1]}]
    notes = table(report_of(tmp_path / "uneven", exclude=without), "Perplexity").notes
    assert "Not all had as many candidates: rope 2, alibi 3." in notes


def test_one_more_seed_costs_the_candidates_of_that_seed(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": ["rope", "alibi"], RATE: RATES}
    report = {"claims": ["perplexity@64: rope > 10"]}
    changes = {"stages": stages(selects=True), "grid": grid, "seeds": [0, 1, 2], "report": report}
    plan = write_plan(tmp_path, changes)
    store = Store.create(tmp_path / "store")
    work(plan, store)
    priced: list[list[Stage]] = []

    def seconds(asked: Sequence[Stage]) -> float:
        priced.append(list(asked))
        return 1.0

    build_report(plan.sweep, store, provenance={}, seconds=seconds)
    [asked] = priced
    trained = [stage for stage in asked if stage.spec.trains]
    assert {stage.seed for stage in asked} == {trained[0].seed}
    assert len(trained) == len(RATES)


def test_rows_at_one_rate_say_so(tmp_path: Path) -> None:
    grid = {"pretrain.embedding": ["rope", "alibi"]}
    notes = table(report_of(tmp_path, selects=False, grid=grid), "Perplexity").notes
    assert "All at learning rate 0.0006; not each at its best." in notes
    one = report_of(tmp_path / "one", selects=False, grid={"pretrain.embedding": ["rope"]})
    assert not any("not each at its best" in note for note in table(one, "Perplexity").notes)


def test_without_a_selection_evaluations_have_a_table_over_the_axis(tmp_path: Path) -> None:
    report = report_of(tmp_path, selects=False)
    assert {one.title for one in report_tables(report)} >= {
        "Perplexity at 64 by learning rate (perplexity)",
        "Perplexity at 256 by learning rate (perplexity)",
        "Validation loss by learning rate (pretrain)",
    }
    found = table(report, "Perplexity at 64 by learning rate (perplexity)")
    assert len(found.rows) == 2
    assert not any(entry.chosen for row in found.rows for entry in row.entries)
    assert not any("not each at its best" in note for note in table(report, "Perplexity").notes)


def test_the_figure_has_a_curve_for_each_embedding_with_a_ring_at_the_chosen(
    selected: Report,
) -> None:
    title = "Validation loss by learning rate (pretrain)"
    [figure] = [one for one in draw_figures(selected) if one.title == title]
    [panel] = figure.panels
    curves = {curve.label: curve for curve in panel.curves}
    assert {label: [curve.x[i] for i in curve.rings] for label, curve in curves.items()} == {
        "rope": [2e-3],
        "alibi": [4e-3],
    }
    assert curves["rope"].x == tuple(RATES)
    assert curves["rope"].low[1] < curves["rope"].y[1] < curves["rope"].high[1]
    [axes] = panel.draw().axes
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.001", "0.002", "0.004"]
    assert "chosen 0.002" in panel.words


def test_what_is_chosen_is_in_the_json(selected: Report) -> None:
    found = report_json(selected)["selections"]
    assert [(one["axes"]["pretrain.embedding"], one["seed"], one["value"]) for one in found] == [
        (name, seed, BEST[name]) for name in ("rope", "alibi") for seed in (0, 1, 2)
    ]
    assert found[0]["values"] == RATES


def test_the_page_lists_what_a_selection_recorded_and_compared_by_names(selected: Report) -> None:
    page = render_html(selected).replace("<wbr>", "")
    for rate in BEST.values():
        assert f"chosen learning rate: {rate}" in page
    for rate in RATES:
        assert f"mean validation loss at learning rate {rate}: 1.0" in page
    first = next(r.stage for r in selected.stages if isinstance(r.stage.spec, Select))
    labels = {result.stage.key: result.stage.label for result in selected.stages}
    assert len(first.parents) == len(RATES) * 3
    for role, key in first.parents.items():
        assert f"<li>{role}: {labels[key]} <code>{key}</code></li>" in page


@pytest.mark.parametrize("part", ["tables", "figures"])
def test_only_what_a_file_asks_for_is_shown(tmp_path: Path, part: str) -> None:
    report = report_of(tmp_path, report={part: ["perplexity"]})
    assert getattr(report, f"{part[:-1]}_settings") == ()
