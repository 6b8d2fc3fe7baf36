"""The cells of a report as MLflow is to have them: the estimates of the same stages together."""

from __future__ import annotations

from collections.abc import Sequence

from fope_lab.report import Report
from fope_lab.report.results.aggregate import Cell
from fope_lab.tracking import CellRecord, Estimate


def tracked_cells(report: Report) -> list[CellRecord]:
    """The estimates of each group of stages that differ only in their seed.

    Groups without a value are left out.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault(cell.series, []).append(cell)
    finished = {one.stage.key: one.finished or 0.0 for one in report.stages}
    seeds = {one.stage.key: one.stage.seed or 0 for one in report.stages}
    records = []
    for cells in groups.values():
        keys = dict.fromkeys(key for cell in cells for key in cell.keys)
        values = {value.key for cell in cells for value in cell.values}
        if not values:
            continue
        measured = sorted(values, key=lambda key: seeds[key])
        records.append(
            CellRecord(
                measured=tuple(measured),
                missing=tuple(key for key in keys if key not in values),
                estimates=_estimates(cells),
                time=int(max(finished[key] for key in measured) * 1000),
            )
        )
    return records


def _estimates(cells: Sequence[Cell]) -> tuple[Estimate, ...]:
    return tuple(
        Estimate(
            name=cell.metric.name,
            x=cell.x,
            n=cell.estimate.n,
            mean=cell.estimate.mean,
            stderr=cell.estimate.standard_error,
            ci95=cell.estimate.ci95,
        )
        for cell in cells
    )
