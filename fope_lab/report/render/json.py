"""The report for programs: as JSON, the contract of `report --json`, and as single numbers, which
an experiment tracker shows as metrics.

The JSON holds no NaN and no infinity. A value that is not finite is the word NaN, Infinity or
-Infinity, and then the `mean` of its cell is null.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from fope_lab.report.build import Report
from fope_lab.report.claims.judge import VERDICTS
from fope_lab.report.compare.differences import BeforeAfter, difference_of
from fope_lab.report.compare.paper_comparison import PaperComparison
from fope_lab.report.results.cells import Cell, StageResult, json_value
from fope_lab.report.results.recorded import AnalysisResult, HeatmapGroup
from fope_lab.report.results.summary import speed_of
from fope_lab.stages.internal import MEANS, Select

NumberPath = tuple[str, ...]
"""The parts of a number's name, from its group to the number itself; any text is allowed."""


def render_json(report: Report) -> str:
    """Render the report as JSON text."""
    return json.dumps(report_json(report), indent=1, ensure_ascii=False, allow_nan=False)


def report_json(report: Report) -> dict[str, Any]:
    """The report as dicts, lists and values that JSON can hold."""
    summary, ids = report.summary, report.links.ids
    published = report.paper.by_cell if report.paper else {}
    content: dict[str, Any] = {
        "sweep": {"name": report.name, "description": report.description, "path": report.path},
        "generated": report.generated.isoformat(timespec="seconds"),
        "provenance": dict(report.provenance),
        "counts": {"total": summary.total, **summary.counts},
        "cost": asdict(summary.cost),
        "time_lost": summary.time_lost and asdict(summary.time_lost),
        "cells": [
            {**_cell(cell, report), "paper": published.get(cell.key)} for cell in report.cells
        ],
        "before_after": [entry for pair in report.before_after for entry in _before_after(pair)],
        "selections": [_selection(r) for r in report.stages if isinstance(r.stage.spec, Select)],
        "beside": report.paper and _paper(report.paper),
        "heatmaps": [entry for group in report.heatmaps for entry in _heatmaps(group)],
        "analyses": [
            {**_analysis(one), "run_id": ids.get(one.stage.key)} for one in report.analyses
        ],
        "seeds": _seeds(report),
        "claims": [asdict(verdict) for verdict in report.verdicts],
        "stages": [_stage(report, result) for result in report.stages],
    }
    return {name: json_value(value) for name, value in content.items()}


def _seeds(report: Report) -> dict[str, Any] | None:
    if report.seed_rule is None:
        return None
    trainings = [
        {
            "stage": one.training.section,
            "axes": one.training.axes,
            "ran": one.ran,
            "stopped_early": one.stopped,
            "counted": one.counted,
            "settled": one.settled,
        }
        for one in report.counted_seeds
    ]
    return {**asdict(report.seed_rule), "trainings": trainings}


def _cell(cell: Cell, report: Report) -> dict[str, Any]:
    return {
        "stage": cell.section,
        "metric": cell.metric.name,
        "x": cell.x,
        "axes": cell.axes,
        **asdict(cell.estimate),
        "values": [
            {
                "seed": value.seed,
                "value": value.value,
                "stderr": value.measurement.stderr,
                "ci95": value.measurement.ci95,
                "key": value.key,
                "run_id": report.links.ids.get(value.key),
            }
            for value in cell.values
        ],
    }


def _before_after(pair: BeforeAfter) -> list[dict[str, Any]]:
    """A difference for each x of each model that was changed."""
    return [
        {
            "metric": after.metric.name,
            "x": x,
            "before": {"stage": before.section, "axes": before.axes},
            "after": {"stage": after.section, "axes": after.axes},
            "difference": (difference := difference_of(before, after)) and asdict(difference),
        }
        for first, second in pair.pairs
        for x, after in second.cells.items()
        if (before := first.cells.get(x)) is not None
    ]


def _selection(result: StageResult) -> dict[str, Any]:
    """What a stage of kind `select` chose; `value` and `means` are null until it has."""
    stage = result.stage
    return {
        "key": stage.key,
        "axes": stage.axes,
        "seed": stage.seed,
        **{name: stage.config[name] for name in ("over", "by", "values", "seeds")},
        "value": result.choice,
        "means": result.record.recorded.get(MEANS),
    }


def _paper(paper: PaperComparison) -> dict[str, Any]:
    return {
        "source": paper.published.source,
        "title": paper.published.title,
        "says": paper.published.says,
        "notes": paper.published.notes,
        "comparisons": [
            {
                "row": number.row,
                "column": number.column,
                "stage": number.cell.section,
                "metric": number.cell.metric.name,
                "x": number.cell.x,
                "embedding": number.cell.embedding,
                "paper": number.published,
                **asdict(number.cell.estimate),
                "difference": number.difference,
                "inside": number.inside,
            }
            for number in paper.numbers
        ],
        "absent": paper.absent,
    }


def _heatmaps(group: HeatmapGroup) -> list[dict[str, Any]]:
    return [
        {
            "stage": group.section,
            "title": group.title,
            "metric": group.metric,
            "axes": heatmap.axes,
            "n": heatmap.seeds,
            **group.scale,
            "values": [
                [None if math.isnan(value) else value for value in row]
                for row in heatmap.values.tolist()
            ],
        }
        for heatmap in group.maps
    ]


def _analysis(result: AnalysisResult) -> dict[str, Any]:
    return {
        "stage": result.stage.section,
        "analysis": result.analysis.name,
        "source": result.analysis.source,
        "says": result.analysis.says,
        "axes": result.stage.axes,
        "seed": result.stage.seed,
        "numbers": result.numbers,
        "key": result.stage.key,
    }


def _stage(report: Report, result: StageResult) -> dict[str, Any]:
    stage, links = result.stage, report.links
    tokens_per_second, utilisation = speed_of(result)
    return {
        "key": stage.key,
        "name": stage.label,
        "stage": stage.section,
        "kind": stage.kind,
        "state": result.state.status,
        "reason": result.state.reason,
        "axes": stage.axes,
        "seed": stage.seed,
        "train_length": result.trained_length,
        "seconds": result.taken and result.taken.seconds,
        "attempts": result.taken and result.taken.attempts,
        "steps": result.record.recorded.get("steps"),
        "tokens_per_second": tokens_per_second,
        "flops_utilisation": utilisation,
        "unequal": report.unequal.get(stage.key, ()),
        "run_id": links.ids.get(stage.key),
        "link": links.addresses.get(stage.key),
    }


def report_numbers(report: Report) -> dict[NumberPath, float]:
    """The stages by state, the claims by verdict, and the difference from each published number."""
    verdicts = Counter(verdict.verdict for verdict in report.verdicts)
    counts: list[tuple[str, str, int]] = [("stages", *one) for one in report.summary.counts.items()]
    counts += [("claims", word, verdicts[word]) for word in VERDICTS if verdicts]
    numbers: dict[NumberPath, float] = {
        (f"{group}_{words.replace(' ', '_')}",): float(count) for group, words, count in counts
    }
    for number in report.paper.numbers if report.paper else ():
        if number.difference is not None:
            numbers["difference", number.label, number.column] = number.difference
    return numbers
