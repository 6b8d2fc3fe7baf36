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
from fope_lab.report.compare.before_after import BeforeAfter, Difference, difference_of
from fope_lab.report.compare.paper_comparison import ComparedNumber, PaperComparison
from fope_lab.report.results.aggregate import Cell, json_value
from fope_lab.report.results.analyses import AnalysisResult
from fope_lab.report.results.heatmaps import HeatmapGroup
from fope_lab.report.results.stage_results import StageResult
from fope_lab.report.results.summary import speed_of
from fope_lab.stages import Select
from fope_lab.stages.internal import MEANS
from fope_lab.statistics.intervals import MeanEstimate

NumberPath = tuple[str, ...]
"""The parts of a number's name, from its group to the number itself; any text is allowed."""


def render_json(report: Report) -> str:
    """Render the report as JSON text."""
    return json.dumps(report_json(report), indent=1, ensure_ascii=False, allow_nan=False)


def report_json(report: Report) -> dict[str, Any]:
    """The report as dicts, lists and values that JSON can hold."""
    paper = report.paper
    return {
        "sweep": {"name": report.name, "description": report.description, "path": report.path},
        "generated": report.generated.isoformat(timespec="seconds"),
        "provenance": dict(report.provenance),
        "counts": {"total": report.summary.total, **report.summary.counts},
        "cost": asdict(report.summary.cost),
        "time_lost": json_value(report.summary.time_lost and asdict(report.summary.time_lost)),
        "cells": [_cell(report, cell) for cell in report.cells],
        "before_after": [entry for pair in report.before_after for entry in _before_after(pair)],
        "selections": [_selection(r) for r in report.stages if isinstance(r.stage.spec, Select)],
        "beside": None if paper is None else _paper(paper),
        "heatmaps": [entry for group in report.heatmaps for entry in _heatmaps(group)],
        "analyses": [_analysis(report, result) for result in report.analyses],
        "seeds": _seeds(report),
        "claims": [json_value(asdict(verdict)) for verdict in report.verdicts],
        "stages": [_stage(report, result) for result in report.stages],
    }


def _seeds(report: Report) -> dict[str, Any] | None:
    """The rule for the seeds and, where it counts some of them, those of each training."""
    rule = report.seed_rule
    if rule is None:
        return None
    trainings = [
        {
            "stage": one.training.section,
            "axes": json_value(one.training.axes),
            "ran": list(one.ran),
            "stopped_early": list(one.stopped),
            "counted": list(one.counted),
            "settled": one.settled,
        }
        for one in report.counted_seeds
    ]
    return {**json_value(asdict(rule)), "trainings": trainings}


def _cell(report: Report, cell: Cell) -> dict[str, Any]:
    return {
        "stage": cell.section,
        "metric": cell.metric.name,
        "x": cell.x,
        "axes": json_value(cell.axes),
        **_estimate(cell.estimate),
        "values": [
            {
                "seed": value.seed,
                "value": json_value(value.value),
                "stderr": json_value(value.measurement.stderr),
                "ci95": json_value(value.measurement.ci95),
                "key": value.key,
                "run_id": report.links.ids.get(value.key),
            }
            for value in cell.values
        ],
        "paper": report.paper.by_cell.get(cell.key) if report.paper else None,
    }


def _before_after(pair: BeforeAfter) -> list[dict[str, Any]]:
    """A difference for each x of each model that was changed."""
    return [
        {
            "metric": after.metric.name,
            "x": x,
            "before": {"stage": before.section, "axes": json_value(before.axes)},
            "after": {"stage": after.section, "axes": json_value(after.axes)},
            "difference": difference_json(difference_of(before, after)),
        }
        for first, second in pair.pairs
        for x, after in second.cells.items()
        if (before := first.cells.get(x)) is not None
    ]


def difference_json(difference: Difference | None) -> dict[str, Any] | None:
    """A difference with its interval, and what it means; None if there is none."""
    return None if difference is None else json_value(asdict(difference))


def _selection(result: StageResult) -> dict[str, Any]:
    """What a stage of kind `select` chose; `value` and `means` are null until it has."""
    stage, recorded = result.stage, result.record.recorded
    return {
        "key": stage.key,
        "axes": json_value(stage.axes),
        "seed": stage.seed,
        **{name: json_value(stage.config[name]) for name in ("over", "by", "values", "seeds")},
        "value": json_value(result.choice),
        "means": json_value(recorded.get(MEANS)),
    }


def _estimate(estimate: MeanEstimate) -> dict[str, Any]:
    return json_value(asdict(estimate))


def _paper(paper: PaperComparison) -> dict[str, Any]:
    return {
        "source": paper.published.source,
        "title": paper.published.title,
        "says": list(paper.published.says),
        "notes": list(paper.published.notes),
        "comparisons": [_compared(number) for number in paper.numbers],
        "absent": list(paper.absent),
    }


def _compared(number: ComparedNumber) -> dict[str, Any]:
    return {
        "row": number.row,
        "column": number.column,
        "stage": number.cell.section,
        "metric": number.cell.metric.name,
        "x": number.cell.x,
        "embedding": number.cell.embedding,
        "paper": number.published,
        **_estimate(number.cell.estimate),
        "difference": number.difference,
        "inside": number.inside,
    }


def _heatmaps(group: HeatmapGroup) -> list[dict[str, Any]]:
    return [
        {
            "stage": group.section,
            "title": group.title,
            "metric": group.metric,
            "axes": json_value(heatmap.axes),
            "n": heatmap.seeds,
            **json_value(group.scale),
            "values": [
                [None if math.isnan(value) else value for value in row]
                for row in heatmap.values.tolist()
            ],
        }
        for heatmap in group.maps
    ]


def _analysis(report: Report, result: AnalysisResult) -> dict[str, Any]:
    stage, analysis = result.stage, result.analysis
    return {
        "stage": stage.section,
        "analysis": analysis.name,
        "source": analysis.source,
        "says": analysis.says,
        "axes": json_value(stage.axes),
        "seed": stage.seed,
        "numbers": json_value(result.numbers),
        "key": stage.key,
        "run_id": report.links.ids.get(stage.key),
    }


def _stage(report: Report, result: StageResult) -> dict[str, Any]:
    stage, speed = result.stage, speed_of(result)
    return {
        "key": stage.key,
        "name": stage.label,
        "stage": stage.section,
        "kind": stage.kind,
        "state": result.state.status,
        "reason": result.state.reason,
        "axes": json_value(stage.axes),
        "seed": stage.seed,
        "train_length": result.trained_length,
        "seconds": result.taken and result.taken.seconds,
        "attempts": result.taken and result.taken.attempts,
        "steps": result.record.recorded.get("steps"),
        "tokens_per_second": speed and speed.tokens_per_second,
        "flops_utilisation": speed and speed.utilisation,
        "unequal": list(report.unequal.get(stage.key, ())),
        "run_id": report.links.ids.get(stage.key),
        "link": report.links.addresses.get(stage.key),
    }


def report_numbers(report: Report) -> dict[NumberPath, float]:
    """The stages by state, the claims by verdict, and the difference from each published number."""
    numbers: dict[NumberPath, float] = {
        (_name("stages", state),): float(count) for state, count in report.summary.counts.items()
    }
    if report.verdicts:
        counts = Counter(verdict.verdict for verdict in report.verdicts)
        numbers |= {(_name("claims", word),): float(counts[word]) for word in VERDICTS}
    for number in report.paper.numbers if report.paper else ():
        if number.difference is not None:
            numbers["difference", number.label, number.column] = number.difference
    return numbers


def _name(group: str, words: str) -> str:
    return f"{group}_{words.replace(' ', '_')}"
