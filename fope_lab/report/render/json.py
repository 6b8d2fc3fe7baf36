"""The report as JSON, for programs: the contract of `report --json`.

The JSON holds no NaN and no infinity. A value that is not finite is the word NaN, Infinity or
-Infinity, and then the `mean` of its cell is null.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from fope_lab.report.compare.claims import Verdict
from fope_lab.report.compare.paper_comparison import ComparedNumber, PaperComparison
from fope_lab.report.render.links import NO_LINKS, RunLinks
from fope_lab.report.results.aggregate import Cell, MeanEstimate, SeedValue, json_value
from fope_lab.report.results.heatmaps import HeatmapGroup
from fope_lab.report.results.stage_results import StageResult

if TYPE_CHECKING:
    from fope_lab.report.build import Report


def render_json(report: Report, links: RunLinks = NO_LINKS) -> str:
    """Render the report as JSON text."""
    return json.dumps(report_json(report, links), indent=1, ensure_ascii=False, allow_nan=False)


def report_json(report: Report, links: RunLinks = NO_LINKS) -> dict[str, Any]:
    """The report as dicts, lists and values that JSON can hold."""
    paper = report.paper
    published = {} if paper is None else paper.by_cell
    return {
        "sweep": {"name": report.name, "description": report.description, "path": report.path},
        "generated": report.generated.isoformat(timespec="seconds"),
        "provenance": dict(report.provenance),
        "counts": {"total": report.summary.total, **report.summary.counts},
        "cells": [cell_json(cell, links, published.get(cell.key)) for cell in report.cells],
        "beside": None if paper is None else _paper(paper),
        "heatmaps": [entry for group in report.heatmaps for entry in _heatmaps(group)],
        "claims": [_verdict(verdict) for verdict in report.verdicts],
        "stages": [_stage(report, result, links) for result in report.stages],
    }


def cell_json(cell: Cell, links: RunLinks = NO_LINKS, paper: float | None = None) -> dict[str, Any]:
    """A cell; `paper` is the published number in our unit."""
    return {
        "stage": cell.stage,
        "metric": cell.metric.name,
        "x": cell.x,
        "axes": json_value(cell.axes),
        **_estimate(cell.estimate),
        "values": [_value(value, links) for value in cell.values],
        "paper": paper,
    }


def _estimate(estimate: MeanEstimate) -> dict[str, Any]:
    return {"n": estimate.n, "mean": estimate.mean, "ci95": json_value(estimate.ci95)}


def _value(value: SeedValue, links: RunLinks) -> dict[str, Any]:
    return {
        "seed": value.seed,
        "value": json_value(value.value),
        "stderr": json_value(value.measurement.stderr),
        "ci95": json_value(value.measurement.ci95),
        "key": value.key,
        "run_id": links.ids.get(value.key),
    }


def _paper(paper: PaperComparison) -> dict[str, Any]:
    return {
        "source": paper.published.source,
        "title": paper.published.title,
        "says": list(paper.published.says),
        "comparisons": [_compared(number) for number in paper.numbers],
        "absent": list(paper.absent),
    }


def _compared(number: ComparedNumber) -> dict[str, Any]:
    return {
        "row": number.row,
        "column": number.column,
        "stage": number.cell.stage,
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
            "stage": group.stage,
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


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "text": verdict.text,
        "axes": json_value(verdict.axes),
        "verdict": verdict.verdict,
        "p": verdict.p,
        "n": verdict.n,
        "test": verdict.test,
        "reason": verdict.reason,
        "unequal": list(verdict.unequal),
    }


def _stage(report: Report, result: StageResult, links: RunLinks) -> dict[str, Any]:
    stage = result.stage
    return {
        "key": stage.key,
        "name": stage.label,
        "stage": stage.section,
        "kind": stage.kind,
        "state": result.state.status,
        "reason": result.state.reason,
        "axes": json_value(stage.axes),
        "seed": stage.seed,
        "train_length": result.train_length,
        "seconds": result.seconds,
        "unequal": list(report.unequal.get(stage.key, ())),
        "run_id": links.ids.get(stage.key),
        "link": links.addresses.get(stage.key),
    }
