"""What `fope-lab analyze` prints: the table of all analyses, and the results of those that ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.table import Table

from fope_lab.analysis.base import ANALYSIS_TYPES
from fope_lab.stages.labels import label
from fope_lab.stages.result import ResultRecord
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage

ANALYSIS = "analysis"
NEEDS = {"nothing": "–", "model": "CHECKPOINT", "text": "CHECKPOINT --corpus"}
RESULTS = (".npz", ".svg")
"""The suffixes of an analysis's arrays and figure."""


def print_analyses(console: Console) -> None:
    """Print all analyses: what each needs, its options, its paper and what the paper shows."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("analysis", "needs", "options", "source", "what the paper shows with it"):
        table.add_column(title, overflow="fold")
    kinds = ANALYSIS_TYPES.all()
    for name in kinds:
        kind = kinds[name]
        options = (f"{o.name}: {label(o.default)}" for o in dataclasses.fields(cast(Any, kind)))
        table.add_row(name, NEEDS[kind.needs], "\n".join(options), kind.source, kind.says)
    console.print(table)


def print_figures(stages: Iterable[Stage], store: Store, console: Console) -> None:
    """Print the numbers of each finished analysis, and the paths of its figure and its arrays."""
    for stage in stages:
        folder = store.folder(stage.kind, stage.key)
        checkpoint, result = folder.checkpoint(), folder.result()
        if stage.kind != ANALYSIS or checkpoint is None or result is None:
            continue
        paths = sorted(path for path in checkpoint.path.iterdir() if path.suffix in RESULTS)
        numbers = ResultRecord.parse(result).numbers
        lines = [stage.label, *(f"  {name} {value:.6g}" for name, value in numbers.items())]
        for line in (*lines, *(f"  {path}" for path in paths)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
