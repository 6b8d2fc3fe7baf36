"""`fope-lab analyze`: an analysis of a paper, on checkpoints or by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fope_lab.analysis import Analysis, analysis_names, parse_analysis
from fope_lab.stages.labels import label
from fope_lab.store import Store
from fope_lab.sweep import Sweep
from fope_lab.sweep.adhoc_sweep import as_reference, parse_argument

if TYPE_CHECKING:
    from rich.console import Console

STAGE = "analysis"
NEEDS = {"nothing": "–", "model": "CHECKPOINT", "text": "CHECKPOINT --corpus"}


def analysis_content(
    text: str, checkpoints: Sequence[str], corpus: str | None, gpus: float
) -> dict[str, Any]:
    """The content of a sweep with one analysis of each checkpoint, or of none.

    `text` is an analysis's name or '{type: name, option: value}', `corpus` one as in a sweep file.
    Raises DataError for an unknown analysis or option, and SweepError.
    """
    analysis = parse_argument(text, "NAME")
    parse_analysis(analysis)  # before anything else, since it is what is likely to be misspelt
    section: dict[str, Any] = {"kind": "analysis", "analysis": analysis}
    if corpus is not None:
        section["corpus"] = parse_argument(corpus, "--corpus")
    if gpus:
        section["resources"] = {"gpus": gpus}
    content: dict[str, Any] = {"stages": {STAGE: section}}
    references = list(map(as_reference, checkpoints))
    if len(references) == 1:
        [section["from"]] = references
    elif references:
        content["grid"] = {f"{STAGE}.from": references}
    return content


def print_analyses(console: Console) -> None:
    """A table of all analyses: what each needs, its options, and whose figure it is."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("analysis", "needs", "options", "source", "what the paper reads off it"):
        table.add_column(title, overflow="fold")
    for name in analysis_names():
        found = Analysis.types[name]
        table.add_row(name, NEEDS[found.needs], _options(found), found.source, found.says)
    console.print(table)


def _options(kind: type[Analysis]) -> str:
    """The options with their defaults, one a line."""
    fields = dataclasses.fields(cast(Any, kind))
    return "\n".join(f"{field.name}: {label(field.default)}" for field in fields)


def print_figures(sweep: Sweep, store: Store, console: Console) -> None:
    """Where the figure and the arrays of each finished analysis lie, and its numbers."""
    for stage in sweep.by_name[STAGE]:
        folder = store.folder(stage.kind, stage.key)
        checkpoint, result = folder.checkpoint(), folder.result()
        if checkpoint is None or result is None:
            continue
        lines = [stage.name, *(f"  {k} {v:.6g}" for k, v in result["numbers"].items())]
        lines += [f"  {path}" for path in sorted(checkpoint.path.iterdir()) if path.suffix in KEPT]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)


KEPT = (".npz", ".svg")
