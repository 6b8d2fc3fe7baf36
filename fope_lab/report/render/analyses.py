"""The figures of a sweep's analyses: as each stage drew its own, or drawn from its arrays.

A stage draws its figure when it runs. Drawing it again takes a fifth of a second, so this is done
only if the output of the stage is not whole, or is of a version that drew otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fope_lab.config.number_words import words_of_number
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
    """The numbers that were found here: each in the words that its analysis has, and its value."""
    words = type(result.analysis).numbers
    return tuple(
        (words_of_number(words, name), shown_number(n)) for name, n in result.numbers.items()
    )


def shown_number(number: float) -> str:
    """A number with four digits, or with all that it has before the point: 1,048,576."""
    text = f"{number:,.0f}" if 1e3 <= abs(number) < 1e12 else f"{abs(number):.4g}"
    return f"−{text.removeprefix('-')}" if number < 0 else text


def _figure(result: AnalysisResult, name: str) -> Figure:
    notes, numbers = analysis_notes(result), analysis_numbers(result)
    words = " ".join([*notes, *(f"{number}: {value}." for number, value in numbers)])
    draw: Callable[[], matplotlib.figure.Figure] = functools.partial(_draw, result)
    path = result.figure()
    saved = None if path is None else functools.partial(path.read_text, encoding="utf-8")
    if saved is None:
        try:
            drawn = draw()  # now, since only drawing shows whether the arrays are whole
        except DamagedError as error:
            told = (*notes, f"Not drawn: {error}.")
            return Figure(result.title, (), told, natural=True, numbers=numbers)
        draw = functools.partial(_same, drawn)
    drawing = Drawing(draw, name, result.title, words, saved=saved)
    return Figure(result.title, (drawing,), notes, natural=True, numbers=numbers)


def _same(drawn: matplotlib.figure.Figure) -> matplotlib.figure.Figure:
    return drawn


def _draw(result: AnalysisResult) -> matplotlib.figure.Figure:
    arrays = result.arrays()
    try:
        return result.analysis.draw(arrays)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise DamagedError(
            f"{result.folder} has arrays that {result.analysis.name} can't be drawn from: {error!r}"
        ) from error
