"""A passkey's accuracy by depth and length, from what every result has kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_samples import finish, make_report, write_plan

from fope_lab.evaluation.retrieval import PasskeyResult
from fope_lab.report.render.figures import draw_heatmaps
from fope_lab.report.results.heatmaps import depth_heatmaps, group_heatmaps
from fope_lab.stages.result import ResultRecord
from fope_lab.store import Store

RIGHT = {64: [True, True, False, True], 512: [False, False, True, True]}
PLACES = {64: [0.02, 0.04, 0.51, 0.99], 512: [0.03, 0.55, 0.56, 0.91]}


def by_depth(lengths: list[int]) -> dict[str, Any]:
    """What an evaluation keeps of four trials at each length."""
    results = {n: PasskeyResult(n, np.array(RIGHT[n]), depths=np.array(PLACES[n])) for n in lengths}
    return {"by_depth": {str(length): result.by_depth for length, result in results.items()}}


def test_rows_are_depths_and_columns_lengths() -> None:
    [heatmap] = depth_heatmaps(by_depth([512, 64]))
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
            record = ResultRecord(details=by_depth([64, 512]))
            with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
                attempt.finish(record.as_json())
    [group] = group_heatmaps(make_report(plan, store).stages)
    [mean] = group.maps
    assert mean.seeds == 2
    assert mean.values.tolist() == [[1.0, 0.0], [0.0, 0.5], [1.0, 1.0]]
    [figure] = draw_heatmaps([group])
    assert figure.title == "Passkey accuracy by depth and context length"
    assert "depth of the key, %" in figure.drawings[0]
