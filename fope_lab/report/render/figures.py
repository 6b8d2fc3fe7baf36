"""All figures of a report, in the order of the page: its curves, its heat maps, its analyses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fope_lab.drawing.heatmap import Heatmap, draw_heatmap
from fope_lab.report.build import Report
from fope_lab.report.render.curves import Drawing, Figure, draw_curves
from fope_lab.report.results.analyses import AnalysisResult, DamagedError
from fope_lab.report.results.heatmaps import HeatmapGroup, MeanHeatmap


def draw_figures(report: Report) -> list[Figure]:
    """Draw the curves by context length, over a setting and by training step, the heat maps, and
    the analyses."""
    return [
        *draw_curves(report.figure_groups, report.training_curves, report.figure_settings),
        *draw_heatmaps(report.heatmaps),
        *draw_analyses(report.analyses),
    ]


def draw_heatmaps(groups: Sequence[HeatmapGroup]) -> list[Figure]:
    """Draw a figure for each group."""
    titles = [group.title for group in groups]
    figures = []
    for i, group in enumerate(groups):
        named = group.section in group.metric and titles.count(group.title) == 1
        title = group.title if named else f"{group.title} ({group.section})"
        scale = group.scale
        drawings = []
        for index, mean in enumerate(group.maps):
            heatmap = Heatmap(
                title=mean.label,
                x_label=scale["x_label"],
                y_label=scale["y_label"],
                x_ticks=tuple(f"{x}" for x in scale["x"]),
                y_ticks=tuple(f"{y:g}" if isinstance(y, float) else f"{y}" for y in scale["y"]),
                values=mean.values,
                low=float(scale["low"]),
                high=float(scale["high"]),
            )
            draw, words = partial(draw_heatmap, heatmap), _in_words(mean, scale)
            name = f"heatmap-{i}-{index}"
            drawings.append(Drawing(draw, name, f"{title}: {mean.label}", words))
        seeds = sorted({mean.seeds for mean in group.maps})
        counted = f"Means over {' or '.join(map(str, seeds))} seeds."
        notes = ("One seed." if seeds == [1] else counted, *group.notes)
        figures.append(Figure(title, tuple(drawings), notes, natural=True))
    return figures


def _in_words(mean: MeanHeatmap, scale: Mapping[str, Any]) -> str:
    rows = [
        f"{scale['y_label']} {y}: {', '.join(f'{value:.3g}' for value in row)}"
        for y, row in zip(scale["y"], mean.values.tolist(), strict=True)
    ]
    return f"columns {', '.join(map(str, scale['x']))}; " + "; ".join(rows)


def analysis_notes(result: AnalysisResult) -> tuple[str, ...]:
    """The source of an analysis, and what the paper says."""
    return f"{result.analysis.source}.", f"The paper: {result.analysis.says}"


def analysis_numbers(result: AnalysisResult) -> tuple[tuple[str, str], ...]:
    """The numbers that were found here: each in the words that its analysis has, and its value."""
    words = result.analysis.number_words
    return tuple(
        (words.get(name, name.replace("_", " ")), shown_number(n))
        for name, n in result.numbers.items()
    )


def shown_number(number: float) -> str:
    """A number with four digits, or with all that it has before the point: 1,048,576."""
    text = f"{number:,.0f}" if 1e3 <= abs(number) < 1e12 else f"{abs(number):.4g}"
    return f"−{text.removeprefix('-')}" if number < 0 else text


def draw_analyses(results: Iterable[AnalysisResult]) -> list[Figure]:
    """Draw a figure for each analysis; damaged arrays leave a note in place of the drawing."""
    figures = []
    for i, result in enumerate(results):
        notes, numbers = analysis_notes(result), analysis_numbers(result)
        words = " ".join([*notes, *(f"{number}: {value}." for number, value in numbers)])
        drawings: tuple[Drawing, ...] = ()
        try:
            drawn = result.draw()  # now, since only drawing shows whether the arrays are whole
            draw = partial(lambda figure: figure, drawn)
            drawings = (Drawing(draw, f"analysis-{i}", result.title, words),)
        except DamagedError as error:
            notes = (*notes, f"Not drawn: {error}.")
        figures.append(Figure(result.title, drawings, notes, natural=True, numbers=numbers))
    return figures
