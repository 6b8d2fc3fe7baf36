"""A sweep's report: from its plan and the store to a page, a JSON file and the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.durable import write_atomic
from fope_lab.report.aggregate import Cell, build_cells, json_value
from fope_lab.report.heatmaps import MapBlock, build_heatmaps
from fope_lab.report.joined_tables import build_tables
from fope_lab.report.layout import Block, build_blocks, stages_without_cells
from fope_lab.report.settings import SettingsGroup, collect_settings
from fope_lab.report.states import StageReading, read_stages
from fope_lab.report.summary import Summary, summarise
from fope_lab.report.tables import Table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.report.figure import Figure
    from fope_lab.store import Store
    from fope_lab.sweep.plan import Plan

PRINTED_MISSING = 20
REPORT_HTML, REPORT_JSON = "report.html", "report.json"


@dataclass(frozen=True)
class Report:
    """A sweep's results at one moment, read once; every output is made from the same reading."""

    name: str
    description: str
    path: str
    generated: datetime
    provenance: Mapping[str, str]
    readings: tuple[StageReading, ...]
    cells: tuple[Cell, ...]
    run_ids: Mapping[str, str]  # stage's key → MLflow run
    links: Mapping[str, str]  # stage's key → the run's page

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The cells as they stand together."""
        return build_blocks(self.cells, self.readings)

    @cached_property
    def summary(self) -> Summary:
        """Counts, findings and gaps."""
        return summarise(self.readings, self.blocks)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """A table for each curve, and one for all single numbers of a kind, of each stage."""
        return build_tables(self.blocks)

    @cached_property
    def heatmaps(self) -> tuple[MapBlock, ...]:
        """The heat maps of the stages, means over seeds."""
        return build_heatmaps(self.readings)

    @cached_property
    def settings(self) -> tuple[SettingsGroup, ...]:
        """Every setting behind the numbers."""
        return collect_settings(self.readings)

    @property
    def figures(self) -> list[Figure]:
        """Curves over context length and along training, heat maps, analyses; matplotlib."""
        from fope_lab.report.analyses import draw_analyses
        from fope_lab.report.figures import draw_all
        from fope_lab.report.heatmaps import draw_heatmaps

        curves = draw_all(self.blocks, self.readings)
        return [*curves, *draw_heatmaps(self.heatmaps), *draw_analyses(self.readings)]

    @property
    def without_results(self) -> dict[str, list[StageReading]]:
        """Stages of the sweep file of which nothing is known yet."""
        return stages_without_cells(self.readings, self.cells)

    def as_json(self) -> dict[str, Any]:
        """What `report --json` prints; holds no NaN and no infinity."""
        return {
            "sweep": {"name": self.name, "description": self.description, "path": self.path},
            "generated": self.generated.isoformat(timespec="seconds"),
            "provenance": dict(self.provenance),
            "counts": {"total": self.summary.total, **self.summary.counts},
            "cells": [cell.as_json() for cell in self.cells],
            "heatmaps": [one for block in self.heatmaps for one in block.as_json()],
            "claims": [],
            "stages": [self._stage_json(reading) for reading in self.readings],
        }

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_json(), indent=1, ensure_ascii=False, allow_nan=False)

    def write(self, directory: Path) -> Path:
        """Write report.json and report.html into `directory`; returns the page's path."""
        from fope_lab.report.html import render_html

        write_atomic(directory / REPORT_JSON, self.json() + "\n")
        write_atomic(directory / REPORT_HTML, render_html(self))
        return directory / REPORT_HTML

    def print(self, console: Console) -> None:
        """The summary and all tables, for people."""

        def line(text: str = "") -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        for table in self.tables:
            print_table(table, console)
            line()
        line(f"{self.name}: {self.summary.headline} {self.summary.seeds_line}")
        for finding in self.summary.findings:
            line(f"  {finding}")
        if self.summary.missing:
            line("Missing:")
            for text in self.summary.missing[:PRINTED_MISSING]:
                line(f"  {text}")
            rest = len(self.summary.missing) - PRINTED_MISSING
            if rest > 0:
                line(f"  and {rest} more; the report lists them all")

    def _stage_json(self, reading: StageReading) -> dict[str, Any]:
        stage = reading.stage
        return {
            "key": stage.key,
            "name": stage.name,
            "stage": stage.stage,
            "kind": stage.kind,
            "state": reading.state,
            "reason": reading.reason,
            "axes": json_value(stage.axes),
            "seed": reading.stage.seed,
            "train_length": reading.train_length,
            "seconds": reading.seconds,
            "run_id": self.run_ids.get(stage.key),
            "link": self.links.get(stage.key),
        }


def build_report(
    plan: Plan,
    store: Store,
    *,
    run_ids: Mapping[str, str],
    links: Mapping[str, str],
    provenance: Mapping[str, object],
) -> Report:
    """Read the stages of `plan` from `store`.

    `run_ids` and `links` give a stage's MLflow run and its address by the stage's key; a stage may
    lack both. `provenance` is shown as it is: versions, commit, places.
    """
    readings = read_stages(plan, store)
    return Report(
        name=plan.sweep.name,
        description=plan.sweep.description or "",
        path=str(plan.sweep.path),
        generated=datetime.now(UTC),
        provenance={name: str(value) for name, value in provenance.items()},
        readings=readings,
        cells=build_cells(readings, run_ids, links),
        run_ids=run_ids,
        links=links,
    )
