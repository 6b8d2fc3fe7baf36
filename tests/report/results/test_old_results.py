"""Results of each kind as they were written before results had their present shape.

old_results.json has for each kind what a run wrote, shortened, and what the report read of it then:
the measurements, what guessing gives, and the settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fope_lab.report.results.old_metric_names import metric_named
from fope_lab.report.results.old_results import lift_numbers, lift_result
from fope_lab.stages.result import RESULT_SCHEMA, Measurement, ResultRecord
from fope_lab.store import Row

SAMPLES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("old_results.json").read_text(encoding="utf-8")
)


def lifted(sample: dict[str, Any]) -> ResultRecord:
    rows = [Row(step, 0, {name: value}) for step, name, value in sample["rows"]]
    return lift_result(sample["result"], rows, metric_named)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample["kind"]))
def test_an_old_result_is_read_as_before(sample: dict[str, Any]) -> None:
    record = lifted(sample)
    results = [m for m in record.metrics if metric_named(m.name)]
    assert [
        {
            "name": m.name,
            "x": m.x,
            "value": m.value,
            "stderr": m.stderr,
            "ci95": None if m.ci95 is None else list(m.ci95),
        }
        for m in results
    ] == sample["measured"]
    chances = {m.name: m.chance for m in results if m.chance is not None}
    assert chances == sample["chance"]
    assert record.recorded == sample["recorded"]
    assert list(record.heatmaps) == sample["result"].get("heatmaps", [])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample["kind"]))
def test_a_lifted_result_has_the_present_shape(sample: dict[str, Any]) -> None:
    content = json.loads(json.dumps(lifted(sample).as_json()))
    jsonschema.validate(content, RESULT_SCHEMA)
    assert ResultRecord.parse(content) == lifted(sample)


def test_the_numbers_of_an_old_analysis_are_read() -> None:
    [sample] = [sample for sample in SAMPLES if sample["kind"] == "analysis"]
    record = lifted(sample)
    assert record.numbers == sample["result"]["numbers"]
    assert record.numbers
    among_metrics = ResultRecord(
        metrics=tuple(Measurement(name=name, value=x) for name, x in record.numbers.items()),
        recorded=record.recorded,
    )
    assert lift_numbers(among_metrics) == record
