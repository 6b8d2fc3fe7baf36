"""What is known of the error of a finite evaluation: beside its number, and no number itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, finish, make_report, write_plan

from fope_lab.report import Report
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import MOST_COLUMNS, build_tables
from fope_lab.report.results.layout import LEAST_CHANCE
from fope_lab.report.results.old_metric_names import metric_named, metric_of_stderr
from fope_lab.stages.result import Measurement
from fope_lab.store import Store

Rows = list[tuple[int, dict[str, float]]]


def report_of(
    folder: Path, store: Store, rows: Rows, result: dict[str, Any], seeds: tuple[int, ...] = (0,)
) -> Report:
    """A report of one embedding whose passkey stages logged these rows and left this result."""
    grid = {"pretrain.embedding": ["rope"]}
    plan = write_plan(folder, {"seeds": list(seeds), "grid": grid})
    passkeys = [stage for stage in plan.sweep.stages if stage.kind == "passkey"]
    finish(plan, store, skip={stage.label for stage in passkeys})
    for stage in passkeys:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            for step, values in rows:
                attempt.writer.log(step, values)
            attempt.finish(result)
    return make_report(plan, store)


def texts_of(report: Report, title: str) -> list[str]:
    [table] = [table for table in build_tables(report) if table.title == title]
    return [entry.text for entry in table.rows[0].entries]


def notes_of(report: Report, title: str) -> str:
    [table] = [table for table in build_tables(report) if table.title == title]
    return " ".join(table.notes)


def test_an_error_belongs_to_its_metric_at_its_step(tmp_path: Path, store: Store) -> None:
    rows: Rows = [
        (0, {"sciq_accuracy": 0.3124, "sciq_accuracy_stderr": 0.0104, "sciq_loss": 2.5}),
        (4000, {"longbench_trec_by_words": 31.25, "longbench_trec_by_words_stderr": 4.5}),
        (8000, {"longbench_trec_by_words": 20.0}),
    ]
    report = report_of(tmp_path, store, rows, {"x_accuracy": 0.5, "x_accuracy_stderr": 0.25})
    cells = [cell for cell in report.cells if cell.section == "passkey"]
    values = {(c.metric.name, c.x): c.values[0] for c in cells}
    found = {point: (v.value, v.measurement.stderr) for point, v in values.items()}
    assert found == {
        ("sciq_accuracy", None): (0.3124, 0.0104),
        ("sciq_loss", None): (2.5, None),
        ("longbench_trec_by_words", 4000): (31.25, 4.5),
        ("longbench_trec_by_words", 8000): (20.0, None),
        ("x_accuracy", None): (0.5, 0.25),
    }
    assert texts_of(report, "Accuracy (passkey)") == ["0.312 (se 0.010)", "0.500 (se 0.250)"]
    assert texts_of(report, "Longbench trec by words (passkey)") == ["31.25 (se 4.50)", "20.00"]
    assert "standard error" in notes_of(report, "Accuracy (passkey)")
    assert "standard error" not in notes_of(report, "Sciq loss (passkey)")
    assert not any("stderr" in table.title for table in build_tables(report))
    given = {cell["metric"]: cell["values"] for cell in report_json(report)["cells"]}
    assert given["sciq_accuracy"][0]["stderr"] == 0.0104
    assert given["sciq_loss"][0]["stderr"] is None
    [line] = [g.recorded for g in report.settings if g.section == "passkey"]
    assert line == ()


def test_several_seeds_show_their_own_spread(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(0, {"sciq_accuracy": 0.5, "sciq_accuracy_stderr": 0.01})]
    report = report_of(tmp_path, store, rows, {}, seeds=(0, 1))
    assert texts_of(report, "Sciq accuracy (passkey)") == ["0.500 ± 0.000"]
    assert "standard error" not in notes_of(report, "Sciq accuracy (passkey)")
    [cell] = [cell for cell in report_json(report)["cells"] if cell["metric"] == "sciq_accuracy"]
    assert [value["stderr"] for value in cell["values"]] == [0.01, 0.01]


def test_wilsons_interval_is_shown_and_drawn(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(64, {"passkey_accuracy_by_length": 0.9})]
    entry = {"length": 64, "trials": 100, "ci95": [0.826, 0.945]}
    report = report_of(tmp_path, store, rows, {"lengths": [entry]})
    assert texts_of(report, "Passkey accuracy") == ["0.900 (0.826–0.945)"]
    assert "Wilson" in notes_of(report, "Passkey accuracy")
    [figure] = [f for f in draw_figures(report) if f.title == "Passkey accuracy by context length"]
    assert any("Bands of one seed" in note for note in figure.notes)
    [cell] = [
        c for c in report_json(report)["cells"] if c["metric"] == "passkey_accuracy_by_length"
    ]
    assert cell["values"][0]["ci95"] == [0.826, 0.945]


def test_an_interval_belongs_to_the_metric_that_it_names(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(64, {"a_accuracy_by_length": 0.9, "b_accuracy_by_length": 0.1})]
    entries = [
        {"metric": "b_accuracy_by_length", "length": 64, "ci95": [0.0, 0.2]},
        {"length": 64, "ci95": [0.5, 0.6]},  # of two, nobody can tell which
        {"metric": "c_accuracy_by_length", "length": 64, "ci95": [0.5, 0.6]},
    ]
    report = report_of(tmp_path, store, rows, {"lengths": entries})
    assert texts_of(report, "A accuracy (passkey)") == ["0.900"]
    assert texts_of(report, "B accuracy (passkey)") == ["0.100 (0.000–0.200)"]


def test_an_interval_follows_from_a_standard_error() -> None:
    low, high = Measurement(name="a", value=0.5, stderr=0.1).interval or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.5 - 0.1959964, 0.5 + 0.1959964))
    assert Measurement(name="a", value=0.5).interval is None
    assert Measurement(name="a", value=0.5, stderr=0.1, ci95=(0.3, 0.8)).interval == (0.3, 0.8)


def test_names_of_errors() -> None:
    assert metric_of_stderr("a_accuracy_stderr") == "a_accuracy"
    assert metric_of_stderr("a_accuracy") is None
    for name in ("a_accuracy_stderr", "longbench_trec_stderr", "x_accuracy_by_length_stderr"):
        assert metric_named(name) is None


def test_the_level_of_guessing_is_in_the_note_of_a_table(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(0, {"sciq_accuracy": 0.5, "piqa_accuracy": 0.5, "nq_loss": 2.0})]
    tasks = [{"task": "sciq", "chance": 0.25}, {"task": "piqa", "chance": 0.5}, {"task": "nq"}]
    report = report_of(tmp_path, store, rows, {"tasks": tasks})
    assert "Guessing gives: piqa 0.500, sciq 0.250." in notes_of(report, "Accuracy (passkey)")
    assert "Guessing" not in notes_of(report, "Nq loss (passkey)")


@pytest.mark.parametrize(
    ("chance", "drawn"),
    [({"passkey_accuracy_by_length": 0.25}, True), ({"other": 0.25}, False), (1 / 90_000, False)],
)
def test_chance_by_metric_and_chance_that_nobody_sees(
    tmp_path: Path, store: Store, chance: object, drawn: bool
) -> None:
    assert LEAST_CHANCE > 1 / 90_000
    rows: Rows = [(64, {"passkey_accuracy_by_length": 0.9})]
    report = report_of(tmp_path, store, rows, {"chance": chance})
    [figure] = [f for f in draw_figures(report) if f.title == "Passkey accuracy by context length"]
    assert (">chance<" in figure.drawings[0]) == drawn
    assert ("Guessing gives" in notes_of(report, "Passkey accuracy")) == drawn


def test_a_curve_by_position_has_a_linear_axis_and_the_trained_length(
    tmp_path: Path, store: Store
) -> None:
    rows: Rows = [
        (position, {"posgen_accuracy_by_position": 1.0 / (1 + position // 64)})
        for position in range(4, 256)
    ]
    report = report_of(tmp_path, store, rows, {"chance": 1 / 17})
    [figure] = [f for f in draw_figures(report) if "position" in f.title]
    assert figure.title == "Posgen accuracy by position (passkey)"
    words = set(figure.drawings[0].replace("<", ">").split(">"))
    assert {"position, tokens", "trained at 64", "50", "200", "chance"} <= words
    [table] = [t for t in build_tables(report) if t.title == figure.title]
    labels = [int(column.label) for column in table.columns]
    assert len(labels) == MOST_COLUMNS
    assert (labels[0], labels[-1]) == (4, 255)
    assert f"{MOST_COLUMNS} of 252 columns are shown; the JSON has all." in table.notes
    assert len([c for c in report.cells if c.metric.name == "posgen_accuracy_by_position"]) == 252


def test_a_trained_length_outside_the_plot_is_told(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(n, {"passkey_accuracy_by_length": 0.5}) for n in (128, 256)]
    report = report_of(tmp_path, store, rows, {})
    [figure] = [f for f in draw_figures(report) if f.title == "Passkey accuracy by context length"]
    assert "trained at" not in figure.drawings[0]
    assert "Trained at 64, outside the plot." in figure.notes


def test_results_of_any_shape_are_settings_or_measurements(tmp_path: Path, store: Store) -> None:
    result = {
        "form": "symbolic",
        "numbers_of_a_list": [1, 2, 3],
        "by_position": [{"first": 1, "perplexity": 3.0}],
        "mixed": [1, {"a": 2}],
        "heatmaps": [{"title": "t"}],
        "lengths": [{"length": 64, "trials": 5}, {"length": 32, "trials": 5}],
        "nothing": None,
        "numbers": {"slope": 3.0},
        "tasks": {"trec": {"prompt": "p", "buckets": {"0-4k": {"score": 3.0, "stderr": 0.1}}}},
        "average": {"0-4k": {"score": math.pi}},
    }
    report = report_of(tmp_path, store, [(64, {"passkey_accuracy_by_length": 0.5})], result)
    [recorded] = [dict(g.recorded) for g in report.settings if g.section == "passkey"]
    assert recorded == {
        "numbers_of_a_list": "1, 2, 3",
        "trials": "5 at each length",
        "nothing": "none",
        "tasks.trec.prompt": "p",
    }


def test_tasks_of_a_stage_are_columns_of_one_table(tmp_path: Path, store: Store) -> None:
    rows: Rows = [(0, {"sciq_accuracy": 0.5, "sciq_loss": 3.0, "piqa_accuracy": 0.25})]
    rows.append((64, {"passkey_accuracy_by_length": 0.5}))
    report = report_of(tmp_path, store, rows, {})
    titles = [table.title for table in build_tables(report)]
    assert titles == [
        "Perplexity",
        "Passkey accuracy",
        "Loss (pretrain)",
        "Accuracy (passkey)",
        "Sciq loss (passkey)",
    ]
    [table] = [table for table in build_tables(report) if table.title == "Accuracy (passkey)"]
    assert [column.label for column in table.columns] == ["piqa", "sciq"]
    assert [entry.text for entry in table.rows[0].entries] == ["0.250", "0.500"]
    assert len(table.notes) == len(set(table.notes))


def test_the_best_is_that_of_each_task(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"grid": {"pretrain.embedding": ["rope", "fope"]}})
    passkeys = [stage for stage in plan.sweep.stages if stage.kind == "passkey"]
    finish(plan, store, skip={stage.label for stage in passkeys})
    for stage in passkeys:
        a, b = {"rope": (0.1, 0.9), "fope": (0.2, 0.8)}[stage.embedding or ""]
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            a, b = (value * (1 - 0.01 * (stage.seed or 0)) for value in (a, b))
            attempt.writer.log(0, {"a_accuracy": a, "b_accuracy": b})
            attempt.finish({})
    tables = build_tables(make_report(plan, store))
    [table] = [table for table in tables if table.title == "Accuracy (passkey)"]
    assert [row.labels for row in table.rows] == [("rope",), ("fope",)]
    assert [[e.best for e in row.entries] for row in table.rows] == [[False, True], [True, False]]


def test_two_stages_with_one_metric_are_told_apart(tmp_path: Path, store: Store) -> None:
    more = {"key": {**BASE["stages"]["passkey"], "trials": 3}}
    plan = write_plan(tmp_path, {"seeds": [0], "stages": {**BASE["stages"], **more}})
    finish(plan, store)
    titles = [table.title for table in build_tables(make_report(plan, store))]
    assert titles[:3] == ["Perplexity", "Passkey accuracy (passkey)", "Passkey accuracy (key)"]
