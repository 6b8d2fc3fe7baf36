"""The figures of a sweep's analyses, drawn from the arrays in the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fope_lab.report.render.figure import Drawing, Figure
from fope_lab.report.results.analyses import AnalysisResult, DamagedError

if TYPE_CHECKING:
    import matplotlib.figure


def draw_analyses(results: Iterable[AnalysisResult]) -> list[Figure]:
    """Draw a figure for each analysis; damaged arrays leave a note in place of the drawing."""
    return [_figure(result, f"analysis-{i}") for i, result in enumerate(results)]


def analysis_notes(result: AnalysisResult) -> tuple[str, ...]:
    """The source of an analysis, what the paper says, and the numbers that were found here."""
    notes = (f"{result.analysis.source}.", f"The paper: {result.analysis.says}")
    numbers = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in result.numbers.items())
    return (*notes, f"Here: {', '.join(numbers)}.") if result.numbers else notes


def _figure(result: AnalysisResult, name: str) -> Figure:
    notes = analysis_notes(result)
    try:
        drawn = _draw(result)  # now, since only drawing shows whether the arrays are whole
    except DamagedError as error:
        return Figure(result.title, (), (*notes, f"Not drawn: {error}."), natural=True)
    drawing = Drawing(lambda: drawn, name, result.title, " ".join(notes))
    return Figure(result.title, (drawing,), notes, natural=True)


def _draw(result: AnalysisResult) -> matplotlib.figure.Figure:
    arrays = result.arrays()
    try:
        return result.analysis.draw(arrays)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DamagedError(
            f"{result.folder} has arrays that {result.analysis.name} can't be drawn from: {error!r}"
        ) from error
