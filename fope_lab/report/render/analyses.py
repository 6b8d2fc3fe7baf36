"""The figures of a sweep's analyses, drawn from the arrays in the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fope_lab.drawing.svg import inline_svg
from fope_lab.report.render.figure import Figure
from fope_lab.report.results.analyses import AnalysisResult, DamagedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def draw_analyses(results: Iterable[AnalysisResult]) -> list[Figure]:
    """Draw a figure for each analysis; damaged arrays leave a note in place of the drawing."""
    return [_figure(result, f"analysis-{i}") for i, result in enumerate(results)]


def _figure(result: AnalysisResult, name: str) -> Figure:
    analysis = result.analysis
    notes = [f"{analysis.source}.", f"The paper: {analysis.says}"]
    if result.numbers:
        numbers = (f"{n.name.replace('_', ' ')} {n.value:.4g}" for n in result.numbers)
        notes.append(f"Here: {', '.join(numbers)}.")
    try:
        drawing = inline_svg(_draw(result), name, result.title, " ".join(notes))
    except DamagedError as error:
        return Figure(result.title, (), (*notes, f"Not drawn: {error}."), natural=True)
    return Figure(result.title, (drawing,), tuple(notes), natural=True)


def _draw(result: AnalysisResult) -> Drawing:
    arrays = result.arrays()
    try:
        return result.analysis.draw(arrays)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DamagedError(
            f"{result.folder} has arrays that {result.analysis.name} can't be drawn from: {error!r}"
        ) from error
