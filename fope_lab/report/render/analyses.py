"""The figures of a sweep's analyses, drawn anew from the arrays in the store."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fope_lab.analysis import Analysis, Arrays
from fope_lab.analysis.base import ARRAYS
from fope_lab.drawing.svg import inline_svg
from fope_lab.evaluation.analysis import AnalysisStage
from fope_lab.report.render.figure import Figure
from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.stage_results import StageResult
from fope_lab.store import StageFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


class DamagedError(Exception):
    """Arrays that are not there, or that no figure can be drawn from."""


def draw_analyses(readings: Sequence[StageResult]) -> list[Figure]:
    """A figure for each finished analysis; a note in its place where its arrays are damaged."""
    stages: dict[str, list[StageResult]] = {}
    for reading in readings:
        if isinstance(reading.stage.spec, AnalysisStage):
            stages.setdefault(reading.stage.section, []).append(reading)
    figures: list[Figure] = []
    for group in stages.values():
        axes = read_axes(reading.stage for reading in group)
        seeds = {reading.stage.seed for reading in group}
        for reading in group:
            if reading.state.is_done:
                title = _title(reading, axes, several=len(seeds) > 1)
                figures.append(_figure(reading, title, f"analysis-{len(figures)}"))
    return figures


def read_arrays(reading: StageResult) -> Arrays:
    """What a finished analysis left. Raises DamagedError."""
    checkpoint = StageFolder(reading.folder).checkpoint()
    if checkpoint is None:
        raise DamagedError(f"{reading.folder} has no arrays")
    path = checkpoint.path / ARRAYS
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DamagedError(f"{path} can't be read: {error}") from error


def _analysis(reading: StageResult) -> Analysis:
    assert isinstance(reading.stage.spec, AnalysisStage)
    analysis: Analysis = reading.stage.spec.analysis
    return analysis


def _figure(reading: StageResult, title: str, name: str) -> Figure:
    analysis = _analysis(reading)
    notes = [f"{analysis.source}.", f"The paper: {analysis.says}"]
    numbers = reading.record.metrics
    if numbers:
        found = (f"{number.name.replace('_', ' ')} {number.value:.4g}" for number in numbers)
        notes.append(f"Here: {', '.join(found)}.")
    try:
        drawing = inline_svg(_draw(analysis, reading), name, title, " ".join(notes))
    except DamagedError as error:
        return Figure(title, (), (*notes, f"Not drawn: {error}."), natural=True)
    return Figure(title, (drawing,), tuple(notes), natural=True)


def _draw(analysis: Analysis, reading: StageResult) -> Drawing:
    arrays = read_arrays(reading)
    try:
        return analysis.draw(arrays)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DamagedError(
            f"{reading.folder} has arrays that {analysis.name} can't be drawn from: {error!r}"
        ) from error


def _title(reading: StageResult, axes: Axes, *, several: bool) -> str:
    """The analysis, and what tells it from others of its stage."""
    stage = reading.stage
    name = _analysis(reading).name
    parts = []
    if axes.series:
        parts = [axes.label(stage, stage.section), axes.panel(stage)]
    elif stage.embedding:
        parts = [stage.embedding]
    if several:
        parts.append(f"seed {stage.seed}")
    title = name if stage.section == name else f"{name} ({stage.section})"
    told = ", ".join(filter(None, parts))
    return f"{title}: {told}" if told else title
