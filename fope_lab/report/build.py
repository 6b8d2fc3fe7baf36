"""A sweep's report: from its plan and the store to a page, a JSON file and the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.atomic_files import write_atomic
from fope_lab.report.compare.claims import Verdict, judge_claims
from fope_lab.report.compare.comparability_marks import comparability_marks, read_histories
from fope_lab.report.compare.paper_comparison import (
    PaperComparison,
    compare_with_paper,
    print_paper_comparison,
)
from fope_lab.report.compare.published import PublishedTable, load_published
from fope_lab.report.compare.training_history import TrainingHistory
from fope_lab.report.render.claims_view import ClaimView, group_verdicts, print_claims
from fope_lab.report.render.heatmaps import HeatmapGroup, build_heatmaps
from fope_lab.report.render.joined_tables import build_tables
from fope_lab.report.render.summary import Summary, summarise
from fope_lab.report.render.tables import Table, print_table
from fope_lab.report.results.aggregate import Cell, build_cells, json_value
from fope_lab.report.results.layout import MetricGroup, group_metrics, stages_without_cells
from fope_lab.report.results.requested_metrics import requested_groups, requested_trainings
from fope_lab.report.results.settings import SettingsGroup, collect_settings
from fope_lab.report.results.stage_results import StageResult, read_stages

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.report.render.figure import Figure
    from fope_lab.store import Store
    from fope_lab.sweep.graph import Sweep
    from fope_lab.sweep.plan import Plan

PRINTED_MISSING = 20
REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)


@dataclass(frozen=True)
class Report:
    """A sweep's results at one moment, read once; every output is made from the same reading."""

    sweep: Sweep
    name: str
    description: str
    path: str
    generated: datetime
    provenance: Mapping[str, str]
    readings: tuple[StageResult, ...]
    cells: tuple[Cell, ...]
    run_ids: Mapping[str, str]  # stage's key → MLflow run
    links: Mapping[str, str]  # stage's key → the run's page
    published: PublishedTable | None = None  # what the sweep's paper prints

    @cached_property
    def blocks(self) -> tuple[MetricGroup, ...]:
        """The cells as they stand together."""
        return group_metrics(self.cells, self.readings)

    @cached_property
    def histories(self) -> Mapping[str, TrainingHistory]:
        """What became of each stage's model, by the stage's key."""
        return read_histories(self.readings)

    @cached_property
    def unequal(self) -> Mapping[str, tuple[str, ...]]:
        """In what models differ from those they stand beside in tables, by their stages' keys."""
        found: dict[str, tuple[str, ...]] = {}
        for block in self.blocks:
            lines = comparability_marks(block, self.histories).lines
            for line in block.lines:
                if id(line) in lines:
                    keys = (key for cell in line.cells.values() for key in cell.keys)
                    found |= dict.fromkeys(keys, lines[id(line)])
        return found

    @cached_property
    def summary(self) -> Summary:
        """Counts, findings and gaps."""
        return summarise(self.readings, self._in_tables)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """A table for each curve, and one for all single numbers of a kind, of each stage; or
        those that the sweep file asks for."""
        return build_tables(self._in_tables, self.histories)

    @cached_property
    def _in_tables(self) -> tuple[MetricGroup, ...]:
        return requested_groups(self.blocks, self.sweep.report.tables, self.sweep.by_name)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What became of the claims."""
        return judge_claims(self.sweep.report, self.sweep.by_name, self.readings)

    @property
    def claims(self) -> tuple[ClaimView, ...]:
        """The same by claim."""
        return group_verdicts(self.verdicts)

    @cached_property
    def beside(self) -> PaperComparison | None:
        """The paper's numbers with ours beside them, if the sweep names a paper."""
        if self.published is None:
            return None
        return compare_with_paper(self.published, self.cells, self.readings)

    @cached_property
    def heatmaps(self) -> tuple[HeatmapGroup, ...]:
        """The heat maps of the stages, means over seeds."""
        return build_heatmaps(self.readings)

    @cached_property
    def settings(self) -> tuple[SettingsGroup, ...]:
        """Every setting behind the numbers."""
        return collect_settings(self.readings)

    @property
    def figures(self) -> list[Figure]:
        """Curves over context length and along training, or those that the sweep file asks for;
        heat maps, analyses; matplotlib."""
        from fope_lab.report.render.analyses import draw_analyses
        from fope_lab.report.render.figures import draw_all
        from fope_lab.report.render.heatmaps import draw_heatmaps

        asked, by_name = self.sweep.report.figures, self.sweep.by_name
        curves = draw_all(
            requested_groups(self.blocks, asked, by_name),
            requested_trainings(self.readings, asked, by_name),
            self.histories,
        )
        return [*curves, *draw_heatmaps(self.heatmaps), *draw_analyses(self.readings)]

    @property
    def without_results(self) -> dict[str, list[StageResult]]:
        """Stages of the sweep file of which nothing is known yet."""
        return stages_without_cells(self.readings, self.cells)

    def as_json(self) -> dict[str, Any]:
        """What `report --json` prints; holds no NaN and no infinity."""
        published = {} if self.beside is None else self.beside.by_cell
        return {
            "sweep": {"name": self.name, "description": self.description, "path": self.path},
            "generated": self.generated.isoformat(timespec="seconds"),
            "provenance": dict(self.provenance),
            "counts": {"total": self.summary.total, **self.summary.counts},
            "cells": [cell.as_json(published.get(id(cell))) for cell in self.cells],
            "beside": None if self.beside is None else self.beside.as_json(),
            "heatmaps": [one for block in self.heatmaps for one in block.as_json()],
            "claims": [verdict.as_json() for verdict in self.verdicts],
            "stages": [self._stage_json(reading) for reading in self.readings],
        }

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_json(), indent=1, ensure_ascii=False, allow_nan=False)

    def markdown(self) -> str:
        """What `report --markdown` prints."""
        from fope_lab.report.render.markdown import render_markdown

        return render_markdown(self)

    def write(self, directory: Path) -> Path:
        """Write the report's files (REPORT_FILES) into `directory`; returns the page's path."""
        from fope_lab.report.render.html import render_html

        write_atomic(directory / REPORT_JSON, self.json() + "\n")
        write_atomic(directory / REPORT_MARKDOWN, self.markdown())
        write_atomic(directory / REPORT_HTML, render_html(self))
        return directory / REPORT_HTML

    def print(self, console: Console) -> None:
        """The summary and all tables, for people."""

        def line(text: str = "") -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        for table in self.tables:
            print_table(table, console)
            line()
        if self.beside is not None:
            print_paper_comparison(self.beside, console)
            line()
        line(f"{self.name}: {self.summary.headline} {self.summary.seeds_line}")
        for finding in self.summary.findings:
            line(f"  {finding}")
        print_claims(self.verdicts, line)
        if self.summary.missing:
            line("Missing:")
            for text in self.summary.missing[:PRINTED_MISSING]:
                line(f"  {text}")
            rest = len(self.summary.missing) - PRINTED_MISSING
            if rest > 0:
                line(f"  and {rest} more; the report lists them all")

    def _stage_json(self, reading: StageResult) -> dict[str, Any]:
        stage = reading.stage
        return {
            "key": stage.key,
            "name": stage.label,
            "stage": stage.section,
            "kind": stage.kind,
            "state": reading.state.status,
            "reason": reading.state.reason,
            "axes": json_value(stage.axes),
            "seed": reading.stage.seed,
            "train_length": reading.train_length,
            "seconds": reading.seconds,
            "unequal": list(self.unequal.get(stage.key, ())),
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
        sweep=plan.sweep,
        name=plan.sweep.name,
        description=plan.sweep.description or "",
        path=str(plan.sweep.path),
        generated=datetime.now(UTC),
        provenance={name: str(value) for name, value in provenance.items()},
        readings=readings,
        cells=build_cells(readings, run_ids, links),
        run_ids=run_ids,
        links=links,
        published=None if plan.sweep.paper is None else load_published(plan.sweep.paper),
    )
