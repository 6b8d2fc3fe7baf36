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
    """The source of an analysis, and what the paper says."""
    return f"{result.analysis.source}.", f"The paper: {result.analysis.says}"


def analysis_numbers(result: AnalysisResult) -> tuple[tuple[str, str], ...]:
    """The numbers that were found here: the name of each in words, and its value."""
    return tuple((name.replace("_", " "), f"{n:.4g}") for name, n in result.numbers.items())


def _figure(result: AnalysisResult, name: str) -> Figure:
    notes, numbers = analysis_notes(result), analysis_numbers(result)
    try:
        drawn = _draw(result)  # now, since only drawing shows whether the arrays are whole
    except DamagedError as error:
        told = (*notes, f"Not drawn: {error}.")
        return Figure(result.title, (), told, natural=True, numbers=numbers)
    words = " ".join([*notes, *(f"{number}: {value}." for number, value in numbers)])
    drawing = Drawing(lambda: drawn, name, result.title, words)
    return Figure(result.title, (drawing,), notes, natural=True, numbers=numbers)


def _draw(result: AnalysisResult) -> matplotlib.figure.Figure:
    arrays = result.arrays()
    try:
        return result.analysis.draw(arrays)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DamagedError(
            f"{result.folder} has arrays that {result.analysis.name} can't be drawn from: {error!r}"
        ) from error
