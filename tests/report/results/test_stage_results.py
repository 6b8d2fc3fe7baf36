"""What is known of the error of a finite evaluation: beside its number, and no number itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, declaring, finish, make_report, result, write_plan
from report_samples import report_of as sample_report

from fope_lab.report import Report
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.figures import Figure, draw_figures
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import MOST_COLUMNS, Table, build_tables
from fope_lab.report.results.cells import read_stages
from fope_lab.report.results.layout import LEAST_CHANCE
from fope_lab.stages.metric import (
    LENGTH,
    POSITION,
    WORDS,
    CurveAxis,
    DamagedResultError,
    Measurement,
    Metric,
    ResultRecord,
)
from fope_lab.store.root import Store
from fope_lab.store.state import Status


def accuracy(name: str, axis: CurveAxis | None = None, xs: Sequence[int] = ()) -> Metric:
    short = name.partition("_accuracy")[0]
    return Metric(
        name=name,
        short_name=short,
        better="higher",
        unit="fraction",
        axis=axis,
        xs=tuple(xs) if axis else None,
    )


SCIQ, PIQA = accuracy("sciq_accuracy"), accuracy("piqa_accuracy")
NQ = Metric(name="nq_loss", short_name="nq", better="lower", unit="nats")
PASSKEY = accuracy("passkey_accuracy_by_length", LENGTH, (64, 128, 256))


def report_of(
    folder: Path,
    store: Store,
    metrics: Sequence[Metric],
    measured: Sequence[Measurement],
    seeds: tuple[int, ...] = (0,),
    **recorded: Any,
) -> Report:
    """A report of one embedding whose passkey stages declare and measured these metrics."""
    grid = {"pretrain.embedding": ["rope"]}
    plan = write_plan(folder, {"seeds": list(seeds), "grid": grid})
    passkeys = [stage for stage in plan.sweep.stages if stage.kind == "passkey"]
    finish(plan, store, skip={stage.label for stage in passkeys})
    for stage in passkeys:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.finish(result(*measured, **recorded))
    return make_report(declaring(plan, *metrics), store)


def table_of(report: Report, title: str) -> Table:
    return next(table for table in build_tables(report) if table.title == title)


def texts_of(report: Report, title: str) -> list[str]:
    return [entry.text for entry in table_of(report, title).rows[0].entries]


def notes_of(report: Report, title: str) -> str:
    return " ".join(table_of(report, title).notes)


def figure_of(report: Report, title: str = "Passkey accuracy by context length") -> Figure:
    return next(figure for figure in draw_figures(report) if figure.title == title)


RECORD = ResultRecord(
    metrics=(Measurement(name="passkey_accuracy_by_length", x=64, value=0.5, ci95=(0.4, 0.6)),),
    numbers={"crossing": 1.5},
).as_json()
[METRIC], HEATMAP = RECORD["metrics"], {**dict.fromkeys(("title", "metric"), "m"), "x": []}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *(({k: v for k, v in RECORD.items() if k != name}, f"has no {name}") for name in RECORD),
        ({"loss": 2.0}, "has no format"),
        ({**RECORD, "more": 1}, "has more: '1'"),
        ({**RECORD, "format": 3}, "format is 3"),
        ({**RECORD, "metrics": {"a": 1}}, "has metrics"),
        ({**RECORD, "metrics": [3]}, "a metric is not a mapping"),
        *(
            ({**RECORD, "metrics": [{k: v for k, v in METRIC.items() if k != name}]}, f"no {name}")
            for name in METRIC
        ),
        ({**RECORD, "metrics": [{**METRIC, "value": "0.5"}]}, "has value: '0.5'"),
        ({**RECORD, "metrics": [{**METRIC, "ci95": [0.5]}]}, "the ci95"),
        ({**RECORD, "numbers": {"crossing": "far"}}, "numbers has crossing: 'far'"),
        ({**RECORD, "heatmaps": "heat"}, "has heatmaps: 'heat'"),
        ({**RECORD, "heatmaps": [1]}, "a heat map is not a mapping"),
        ({**RECORD, "heatmaps": [HEATMAP]}, "a heat map has no x_label"),
    ],
)
def test_a_result_of_another_shape_is_damage_of_its_stage(
    tmp_path: Path, store: Store, content: dict[str, Any], words: str
) -> None:
    with pytest.raises(DamagedResultError, match=re.escape(words)):
        ResultRecord.parse(content)
    plan = write_plan(tmp_path, {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}})
    [stage] = [stage for stage in plan.sweep.stages if stage.kind == "passkey"]
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.finish(content)
    [found] = [r for r in read_stages(plan.sweep.stages, store) if r.stage.key == stage.key]
    assert (found.state.status, found.record) == (Status.DAMAGED, ResultRecord())
    assert words in found.state.reason
    assert "--redo" in found.state.reason


def test_a_record_is_read_as_it_was_written() -> None:
    assert ResultRecord.parse(json.loads(json.dumps(RECORD))).as_json() == RECORD


def test_an_error_belongs_to_its_metric_at_its_point(tmp_path: Path, store: Store) -> None:
    trec = Metric(
        name="trec_by_words",
        short_name="trec",
        better="higher",
        unit="percent",
        axis=WORDS,
        xs=(4000, 8000),
    )
    measured = [
        Measurement(name="sciq_accuracy", value=0.3124, stderr=0.0104),
        Measurement(name="nq_loss", value=2.5),
        Measurement(name="trec_by_words", x=4000, value=31.25, stderr=4.5),
        Measurement(name="trec_by_words", x=8000, value=20.0),
        Measurement(name="learning_rate", value=1.0),  # which the stage does not declare
    ]
    report = report_of(tmp_path, store, [SCIQ, NQ, trec], measured)
    cells = [cell for cell in report.cells if cell.section == "passkey"]
    values = {(c.metric.name, c.x): c.values[0] for c in cells}
    found = {point: (v.value, v.measurement.stderr) for point, v in values.items()}
    assert found == {(m.name, m.x): (m.value, m.stderr) for m in measured[:4]}
    assert texts_of(report, "Sciq accuracy (passkey)") == ["0.312 (se 0.010)"]
    assert texts_of(report, "Trec by words (passkey)") == ["31.25 (se 4.50)", "20.00"]
    assert "standard error" in notes_of(report, "Sciq accuracy (passkey)")
    assert "standard error" not in notes_of(report, "Nq loss (passkey)")
    given = {cell["metric"]: cell["values"] for cell in report_json(report)["cells"]}
    assert given["sciq_accuracy"][0]["stderr"] == 0.0104
    assert given["nq_loss"][0]["stderr"] is None


def test_several_seeds_show_their_own_spread(tmp_path: Path, store: Store) -> None:
    measured = [Measurement(name="sciq_accuracy", value=0.5, stderr=0.01)]
    report = report_of(tmp_path, store, [SCIQ], measured, seeds=(0, 1))
    assert texts_of(report, "Sciq accuracy (passkey)") == ["0.500 ± 0.000"]
    assert "standard error" not in notes_of(report, "Sciq accuracy (passkey)")
    [cell] = [cell for cell in report_json(report)["cells"] if cell["metric"] == "sciq_accuracy"]
    assert [value["stderr"] for value in cell["values"]] == [0.01, 0.01]


def test_wilsons_interval_is_shown_and_drawn(tmp_path: Path, store: Store) -> None:
    measured = [Measurement(name=PASSKEY.name, x=64, value=0.9, ci95=(0.826, 0.945))]
    report = report_of(tmp_path, store, [PASSKEY], measured)
    assert texts_of(report, "Passkey accuracy") == ["0.900 (0.826–0.945)"]
    assert "Wilson" in notes_of(report, "Passkey accuracy")
    figure = figure_of(report)
    assert any("Bands of one seed" in note for note in figure.notes)
    [cell] = [c for c in report_json(report)["cells"] if c["metric"] == PASSKEY.name]
    assert cell["values"][0]["ci95"] == [0.826, 0.945]


def test_an_interval_follows_from_a_standard_error() -> None:
    low, high = Measurement(name="a", value=0.5, stderr=0.1).interval or (0.0, 0.0)
    assert (low, high) == pytest.approx((0.5 - 0.1959964, 0.5 + 0.1959964))
    assert Measurement(name="a", value=0.5).interval is None
    assert Measurement(name="a", value=0.5, stderr=0.1, ci95=(0.3, 0.8)).interval == (0.3, 0.8)


def test_the_level_of_guessing_is_in_the_note_of_a_table(tmp_path: Path, store: Store) -> None:
    measured = [
        Measurement(name="sciq_accuracy", value=0.5, chance=0.25),
        Measurement(name="piqa_accuracy", value=0.5, chance=0.5),
        Measurement(name="nq_loss", value=2.0),
    ]
    report = report_of(tmp_path, store, [SCIQ, PIQA, NQ], measured)
    assert "Guessing gives: piqa 0.500, sciq 0.250." in notes_of(report, "Accuracy (passkey)")
    assert "Guessing" not in notes_of(report, "Nq loss (passkey)")


@pytest.mark.parametrize(("chance", "drawn"), [(0.25, True), (None, False), (1 / 90_000, False)])
def test_chance_is_drawn_where_it_can_be_seen(
    tmp_path: Path, store: Store, chance: float | None, drawn: bool
) -> None:
    assert LEAST_CHANCE > 1 / 90_000
    measured = [Measurement(name=PASSKEY.name, x=64, value=0.9, chance=chance)]
    report = report_of(tmp_path, store, [PASSKEY], measured)
    figure = figure_of(report)
    assert (">chance<" in figure.drawings[0]) == drawn
    assert ("Guessing gives" in notes_of(report, "Passkey accuracy")) == drawn


def test_a_curve_by_position_has_a_linear_axis_and_the_trained_length(
    tmp_path: Path, store: Store
) -> None:
    name, xs = "posgen_accuracy_by_position", range(4, 256)
    measured = [Measurement(name=name, x=x, value=1.0 / (1 + x // 64), chance=1 / 17) for x in xs]
    report = report_of(tmp_path, store, [accuracy(name, POSITION, xs)], measured)
    figure = figure_of(report, "Posgen accuracy by position (passkey)")
    words = set(figure.drawings[0].replace("<", ">").split(">"))
    assert {"position, tokens", "trained at 64", "50", "200", "chance"} <= words
    table = table_of(report, figure.title)
    labels = [int(column.label) for column in table.columns]
    assert len(labels) == MOST_COLUMNS
    assert (labels[0], labels[-1]) == (4, 255)
    assert f"{MOST_COLUMNS} of 252 columns are shown; the JSON has all." in table.notes
    assert len([c for c in report.cells if c.metric.name == name]) == 252


def test_a_trained_length_outside_the_plot_is_told(tmp_path: Path, store: Store) -> None:
    measured = [Measurement(name=PASSKEY.name, x=x, value=0.5) for x in (128, 256)]
    report = report_of(tmp_path, store, [PASSKEY], measured)
    figure = figure_of(report)
    assert "trained at" not in figure.drawings[0]
    assert "Trained at 64, outside the plot." in figure.notes


def test_what_a_result_records_is_on_the_page(tmp_path: Path, store: Store) -> None:
    recorded = {
        "form": "symbolic",
        "a_list": [1, 2, 3],
        "trials": {"64": 5, "32": 5},
        "nothing": None,
        "tasks": {"trec": {"prompt": "p"}},
    }
    report = report_of(tmp_path, store, [PASSKEY], [], **recorded)
    page = render_html(report)
    for text in ("a_list: [1, 2, 3]", "nothing: null", "trec: {prompt: p}"):
        assert text in page


def test_tasks_of_a_stage_are_columns_of_one_table(tmp_path: Path, store: Store) -> None:
    measured = [
        Measurement(name="sciq_accuracy", value=0.5),
        Measurement(name="nq_loss", value=3.0),
        Measurement(name="piqa_accuracy", value=0.25),
        Measurement(name=PASSKEY.name, x=64, value=0.5),
    ]
    report = report_of(tmp_path, store, [SCIQ, NQ, PIQA, PASSKEY], measured)
    titles = [table.title for table in build_tables(report)]
    assert titles == [
        "Perplexity",
        "Passkey accuracy",
        "Loss (pretrain)",
        "Nq loss (passkey)",
        "Accuracy (passkey)",
    ]
    table = table_of(report, "Accuracy (passkey)")
    assert [column.label for column in table.columns] == ["piqa", "sciq"]
    assert [entry.text for entry in table.rows[0].entries] == ["0.250", "0.500"]
    assert len(table.notes) == len(set(table.notes))


def test_the_best_is_that_of_each_task(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"grid": {"pretrain.embedding": ["rope", "fope"]}})
    passkeys = [stage for stage in plan.sweep.stages if stage.kind == "passkey"]
    finish(plan, store, skip={stage.label for stage in passkeys})
    for stage in passkeys:
        values = {"rope": (0.1, 0.9), "fope": (0.2, 0.8)}[stage.embedding or ""]
        measured = [
            Measurement(name=metric.name, value=value * (1 - 0.01 * (stage.seed or 0)))
            for metric, value in zip((PIQA, SCIQ), values, strict=True)
        ]
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            attempt.finish(result(*measured))
    table = table_of(make_report(declaring(plan, SCIQ, PIQA), store), "Accuracy (passkey)")
    assert [row.labels for row in table.rows] == [("rope",), ("fope",)]
    assert [[e.best for e in row.entries] for row in table.rows] == [[False, True], [True, False]]


def test_two_stages_with_one_metric_are_told_apart(tmp_path: Path, store: Store) -> None:
    more = {"key": {**BASE["stages"]["passkey"], "trials": 3}}
    changes = {"seeds": [0], "stages": {**BASE["stages"], **more}}
    report = sample_report(tmp_path, store, changes)
    titles = [table.title for table in build_tables(report)]
    assert titles[:3] == ["Perplexity", "Passkey accuracy (passkey)", "Passkey accuracy (key)"]
