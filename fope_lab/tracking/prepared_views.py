"""Views of an experiment that open on the answer: charts with a line for each embedding, tables.

MLflow keeps a saved view as a tag of the experiment, `mlflow.sharedViewState.<id>`. What the tag
holds is not documented, so nothing else here knows it, and a browser tests it.

    a section of the sweep file   a chart for each metric: the mean and the range over seeds
    "results"                     a table of all evaluations: what varies, and what was measured

MLflow loads 100 runs of a view, and more on demand. Charts of more runs than that say so in their
name, and take the runs in the order of their seeds, so that every line is there from the start.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.stages.labels import label, telling_columns
from fope_lab.tracking.outline import Outline, StageOutline
from fope_lab.tracking.stage_run import CURRENT, EDITION, ERRORS, LINE, SUMMARY, valid_name

TAG = "mlflow.sharedViewState."
RESULTS = "results"
GROUPED = {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": LINE}]}
"""One line or bar for all seeds. Of several keys, MLflow would write names and values, and cut."""
CHARTS, GENERATED = "Charts", "Model metrics"
"""The section with the charts of a view, and the one for those that MLflow adds by itself."""
MOST_CHARTS, MOST_COLUMNS, MOST_LINES = 100, 200, 100
"""Limits that keep a view readable, and within MLflow's limit for the value of a tag."""
LOADED = 100
"""The number of runs that MLflow loads at first."""
WIDTHS = {"tags.`embedding`": 150, "tags.`seed`": 60}
"""The widths of columns, in pixels; others have 100. A window of 1,600 pixels has room for 525:
parameters come last, so that a number is among them."""
LEAST = "least_"
"""The beginning of the names of metrics that a training has once, the least of a curve's values."""
PERPLEXITY, LOSS, BITS = "perplexity", "loss", "bits_per_byte"
"""How names of metrics begin that say the same; a perplexity is first, on a logarithmic axis."""


@dataclass(frozen=True)
class View:
    """A saved view: its `title` in MLflow's menu, and whether a link opens it as CHART or TABLE."""

    view_id: str
    name: str
    title: str
    mode: str
    state: Mapping[str, Any]

    def page(self, experiment_id: str) -> str:
        """The page that opens the view, without the address of the server."""
        query = f"compareRunsMode={self.mode}&viewStateShareKey={self.view_id}"
        return f"#/experiments/{experiment_id}/runs?{query}"

    def tag(self, time: int) -> tuple[str, str]:
        """The name and the value of its tag; the view was made at `time` (ms since 1970)."""
        state = json.dumps(self.state, separators=(",", ":")).encode()
        packed = f"deflate;{base64.b64encode(zlib.compress(state, 9)).decode()}"
        value = {"name": self.title, "createdAt": time, "updatedAt": time, "state": packed}
        return f"{TAG}{self.view_id}", json.dumps(value)


def prepared_views(outline: Outline, metrics: Mapping[str, Collection[str]]) -> list[View]:
    """The views of a sweep; `metrics` has the names of the metrics of each run, by stage key.

    A view has the same id whenever it is made, so that it replaces the one of before.
    """
    sections: dict[str, list[StageOutline]] = {}
    for stage in outline.stages:
        if stage.embedding is not None and metrics.get(stage.key):
            sections.setdefault(stage.section, []).append(stage)
    views: list[View] = []
    evaluations: list[StageOutline] = []
    results: dict[str, None] = {}
    for section, stages in sections.items():
        found = {name for stage in stages for name in metrics[stage.key]}
        names = sorted((name for name in found if not _is_error(name)), key=_natural)
        curves = {name for stage in stages for name in stage.curves}
        numbers = [name for name in names if name not in curves]
        trains = "train" in stages[0].config
        charts = _charts(names, curves, steps=trains)
        where = f"tags.stage = '{section}'"
        columns = _columns(stages, numbers)
        views.append(_view(outline, section, where, columns, charts, len(stages)))
        if not trains:
            evaluations += stages
            results |= dict.fromkeys(numbers)
    if evaluations:
        measured = {stage.kind for stage in evaluations}
        others = {stage.kind for stage in outline.stages} - measured | {SUMMARY}
        where = " AND ".join(f"tags.kind != '{kind}'" for kind in sorted(others))
        columns = ["tags.`stage`", *_columns(evaluations, sorted(results, key=_is_second))]
        views.append(_view(outline, RESULTS, where, columns))
    return views


def tag_name(sweep: str, view: str) -> str:
    """The name of the tag that holds a view of a sweep."""
    digest = hashlib.sha256(json.dumps([sweep, view]).encode()).hexdigest()[:16]
    return f"{TAG}fope-lab-{digest}"


def _view(
    outline: Outline,
    name: str,
    where: str,
    columns: Sequence[str],
    charts: Mapping[str, Any] | None = None,
    runs: int = 0,
) -> View:
    all_loaded = runs <= LOADED
    state: dict[str, Any] = {
        "searchFilter": f"{where} AND tags.{EDITION} = '{CURRENT}'",
        "orderByKey": "attributes.start_time" if all_loaded else "tags.`seed`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns[:MOST_COLUMNS]),
        "columnOrder": sorted(columns[:MOST_COLUMNS], key=lambda name: name.startswith("params.")),
        "columnWidths": WIDTHS,
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": [],
        "compareRunSections": [],
        "viewMaximized": False,
        "runListHidden": False,  # it names every line; the legend of a chart has room for two
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }
    title = name if all_loaded else f"{name}, {LOADED} of {runs} runs"
    view_id = tag_name(outline.name, name).removeprefix(TAG)
    mode = "TABLE" if charts is None else "CHART"
    return View(view_id, name, title, mode, {**state, **(charts or {})})


def _charts(names: Sequence[str], curves: Collection[str], *, steps: bool) -> dict[str, Any]:
    """A chart for each metric without "/" in its name; MLflow adds the others, folded up."""
    drawn = sorted(
        (name for name in names if "/" not in name),
        # Of a training the curves of the loss first, then a loss that is a single number.
        key=lambda name: (LOSS not in name, name.startswith(LEAST)) if steps else _is_second(name),
    )[:MOST_CHARTS]
    folded = dict.fromkeys(name.rpartition("/")[0] for name in names if "/" in name)
    return {
        "groupBy": GROUPED,
        "compareRunCharts": [_chart(name, curve=name in curves, steps=steps) for name in drawn],
        "compareRunSections": [
            {
                "uuid": name,
                "name": name,
                "display": name == CHARTS,
                "columns": min(len(drawn), 3),
                "cardHeight": 480 if len(drawn) < 3 else 360,
                "isReordered": False,
                "deleted": False,
                "isGenerated": False,
            }
            for name in dict.fromkeys([CHARTS, *folded, GENERATED])
        ],
    }


def _chart(name: str, *, curve: bool, steps: bool) -> dict[str, Any]:
    chart = {
        "uuid": f"chart of {name}",
        "type": "BAR",
        "runsCountToCompare": MOST_LINES,
        "metricSectionId": CHARTS,
        "deleted": False,
        "isGenerated": False,
        "displayName": name.replace("_", " "),
        "metricKey": name,
    }
    if not (curve or (steps and not name.startswith(LEAST))):
        return chart
    return chart | {
        "type": "LINE",
        "lineSmoothness": 0,
        "xAxisScaleType": "log" if curve else "linear",
        "scaleType": "log" if name.startswith(PERPLEXITY) else "linear",
        "range": {},
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": True,
    }


def _columns(stages: Sequence[StageOutline], numbers: Iterable[str]) -> list[str]:
    """The columns of a table: the embedding, the seed, the axes that tell stages apart which have
    one embedding, and the numbers."""
    axes = list(dict.fromkeys(axis for stage in stages for axis in stage.axes))
    rows = [
        (s.embedding or "", *(label(s.axes[axis]) if axis in s.axes else "" for axis in axes))
        for s in stages
    ]
    telling = [axes[column - 1] for column in telling_columns(rows) if column]
    parameters = (f"params.`{valid_name(axis)}`" for axis in telling)
    metrics = (f"metrics.`{name}`" for name in numbers)
    return ["tags.`embedding`", "tags.`seed`", *parameters, *metrics]


def _is_error(name: str) -> bool:
    return name.partition("/")[0].endswith(ERRORS)


def _is_second(name: str) -> bool:
    return name.startswith((LOSS, BITS))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts perplexity/64 before perplexity/512."""
    return [
        (int(part or 0), "") if index % 2 else (0, part)
        for index, part in enumerate(re.split(r"(\d+)", name))
    ]
