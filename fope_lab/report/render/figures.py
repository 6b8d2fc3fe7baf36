"""All figures of a report: curves by context length or position, over a setting of a training such
as the learning rate, and by training step; heat maps; analyses.

Each panel is a drawing of its own, so that panels stand side by side on a wide page and below each
other on a narrow one. Every curve is labelled at its right end, outside the curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fope_lab.drawing.panels import Heatmap, draw_heatmap
from fope_lab.drawing.plot import Curve, Panel, draw_panel, length_label, points_json
from fope_lab.drawing.svg import Look, assign_looks, inline_svg, pdf_page, standalone_svg
from fope_lab.report.build import Report
from fope_lab.report.render.tables import cell_text, seed_notes
from fope_lab.report.results.cells import Cell
from fope_lab.report.results.layout import MetricGroup, Series, shorten_labels
from fope_lab.report.results.recorded import (
    AnalysisResult,
    DamagedError,
    HeatmapGroup,
    MeanHeatmap,
    TrainingCurves,
)
from fope_lab.report.results.settings import OPTIMISTIC, SettingGroup
from fope_lab.stages.labels import label, split_label
from fope_lab.stages.metric import LENGTH, Metric

if TYPE_CHECKING:
    import matplotlib.figure

MOST_MARKERS = 24
"""A curve with more points has no markers."""
LOG_RATIO = 8
"""An axis is logarithmic if its values span a larger ratio than this."""
FRACTION_RANGE = (-0.03, 1.03)
BANDS = "Bands: 95 % interval over seeds (Student's t)."


@dataclass(frozen=True)
class Drawing:
    """A panel of a figure.

    `draw` makes the matplotlib figure, in the colours of fope_lab/drawing/svg.py, each time that
    the panel is needed: a page of 300 panels would not fit into memory otherwise. `name` is unique
    within a page, and `words` say what the panel shows to people who can't see it. `curves` are
    those whose values a page shows under the pointer.
    """

    draw: Callable[[], matplotlib.figure.Figure]
    name: str
    title: str
    words: str
    curves: tuple[Curve, ...] = ()

    def inline(self) -> str:
        """The panel as an <svg> element of a page."""
        figure = self.draw()
        points = points_json(figure, self.curves) if self.curves else None
        return inline_svg(figure, self.name, self.title, self.words, points)

    def svg(self) -> str:
        """The panel as a file of its own, which follows the reader's light or dark mode."""
        return standalone_svg(self.draw(), self.title, self.words)

    def pdf(self) -> bytes:
        """The panel as a PDF page of its size, in the colours of a light page."""
        return pdf_page(self.draw(), self.title)


@dataclass(frozen=True)
class Figure:
    """A figure: its panels, and the notes below them.

    The panels of a `natural` figure keep their own sizes; others fill the width of the page.
    `numbers` are what was found, each with its name in words.
    """

    title: str
    panels: tuple[Drawing, ...]
    notes: tuple[str, ...]
    natural: bool = False
    numbers: tuple[tuple[str, str], ...] = ()

    @cached_property
    def drawings(self) -> tuple[str, ...]:
        return tuple(panel.inline() for panel in self.panels)


@dataclass(frozen=True)
class Style:
    """The names and looks of all curves of a report, the same in every figure."""

    names: Mapping[str, str]  # label → the name at its curve
    looks: Mapping[str, Look]  # name → colour, marker and dash

    def curve(self, of: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Curve:
        """A curve with a label, in its look."""
        return Curve(self.names[of], self.looks[self.names[of]], tuple(x), tuple(y), **more)

    def explain(self, labels: Iterable[str]) -> list[str]:
        """A note on the options that the names leave out; empty if they leave out none."""
        by_options: dict[str, dict[str, None]] = {}
        for whole in labels:
            name = self.names[whole]
            shown = split_label(name)[1]
            if options := ", ".join(o for o in split_label(whole)[1] if o not in shown):
                by_options.setdefault(options, {})[name] = None
        parts = []
        for options, [*others, last] in by_options.items():
            names = f"{', '.join(others)} and {last} have" if others else f"{last} has"
            parts.append(f"{names} {options}")
        return [f"{'; '.join(parts)}."] if parts else []


def draw_figures(report: Report) -> list[Figure]:
    """Draw all curves, the heat maps and the analyses; curves without a finite value are left out.

    Curves are those by context length or position, those over a setting of a training, then the
    losses by training step. The notes name those whose models differ in more than what is compared.
    """
    settings, trainings = report.figure_settings, report.training_curves
    curves = [group for group in report.figure_groups if group.metric.axis is not None]
    labels = [series.label for group in (*curves, *settings) for series in group.series]
    labels += [curve.label for training in trainings for curve in training.curves]
    names = shorten_labels(labels)
    style = Style(names, assign_looks(names.values()))
    figures = [_by_x(group, style, f"curves-{i}") for i, group in enumerate(curves)]
    figures += [_over_setting(one, style, f"setting-{i}") for i, one in enumerate(settings)]
    figures += [_along_training(t, style, f"training-{i}") for i, t in enumerate(trainings)]
    drawn = [figure for figure in figures if figure is not None]
    return [*drawn, *draw_heatmaps(report.heatmaps), *draw_analyses(report.analyses)]


def _by_x(group: MetricGroup, style: Style, name: str) -> Figure | None:
    metric, by_length = group.metric, group.metric.axis == LENGTH
    xs = [x for x in group.xs if x is not None]
    marks = {}
    for panel, members in group.panels.items():
        lengths = sorted({s.trained_length for s in members if s.trained_length})
        marks[panel] = tuple(n for n in lengths if metric.in_tokens and xs[0] <= n <= xs[-1])
    return _figure(
        name,
        f"{group.title} by context length" if by_length else group.title,
        metric,
        metric.axis.label if metric.axis else "",
        {p: [_curve(series, style) for series in of] for p, of in group.panels.items()},
        _notes(group, style, xs),
        group.unequal,
        marks=marks,
        ticks={x: length_label(x) for x in xs} if by_length else None,
        markers=len(xs) <= MOST_MARKERS,
        level=group.chance,
    )


def _over_setting(group: SettingGroup, style: Style, name: str) -> Figure | None:
    """The curves over a setting, with rings around what was chosen."""
    panels = {
        panel: [_curve(series, style, group.is_chosen) for series in members]
        for panel, members in group.panels.items()
    }
    notes = [BANDS] if any(cell.estimate.ci95 for cell in group.cells) else []
    notes += seed_notes(group.cells)
    notes += style.explain(series.label for series in group.series)
    if any(curve.rings for curves in panels.values() for curve in curves):
        notes.append(f"Rings: chosen, the least mean {group.by} over the seeds. {OPTIMISTIC}")
    ticks = {value: label(value) for value in group.values}
    x_label = f"{group.name} of {group.trained}"
    return _figure(name, group.title, group.metric, x_label, panels, notes, ticks=ticks)


def _along_training(training: TrainingCurves, style: Style, name: str) -> Figure | None:
    write = training.metric.format
    panels: dict[str, list[Curve]] = {}
    for curve in training.curves:
        at = zip(curve.steps, curve.values, strict=True)
        texts = tuple(f"{write(value)} at {step:.0f}" for step, value in at)
        drawn = style.curve(curve.label, curve.steps, curve.values, texts=texts)
        panels.setdefault(curve.panel, []).append(drawn)
    explained = style.explain(curve.label for curve in training.curves)
    return _figure(
        name,
        f"{training.title} along training",
        training.metric,
        "training step",
        panels,
        [*training.notes, *explained],
        in_words=_end_in_words,
        markers=False,
    )


def _curve(
    series: Series, style: Style, is_chosen: Callable[[Cell], bool] = lambda cell: False
) -> Curve:
    points = sorted((x, cell) for x, cell in series.cells.items() if x is not None)
    xs, cells = zip(*points, strict=True)
    bands = [
        # that over seeds; for one seed that of its evaluation, if it is known
        cell.estimate.ci95 or (cell.single and cell.single.interval) or (math.nan, math.nan)
        for cell in cells
    ]
    return style.curve(
        series.label,
        xs,
        [math.nan if cell.estimate.mean is None else cell.estimate.mean for cell in cells],
        low=tuple(low for low, _ in bands),
        high=tuple(high for _, high in bands),
        texts=tuple(
            f"{cell_text(cell)} at {label(x)}" + ", chosen" * is_chosen(cell) for x, cell in points
        ),
        rings=tuple(i for i, cell in enumerate(cells) if is_chosen(cell)),
    )


def _notes(group: MetricGroup, style: Style, xs: Sequence[int]) -> list[str]:
    cells = group.cells
    notes = [BANDS] if any(cell.estimate.ci95 for cell in cells) else []
    if any(cell.single and cell.single.interval for cell in cells):
        notes.append("Bands of one seed: 95 % interval of its evaluation, over what it read.")
    outside = [n for n in group.trained_lengths if not xs[0] <= n <= xs[-1]]
    if outside and group.metric.in_tokens:
        notes.append(f"Trained at {', '.join(map(str, outside))}, outside the plot.")
    if group.chance is not None:
        notes.append(f"Chance: guessing gives {group.metric.format(group.chance)}.")
    notes += seed_notes(cells)
    if group.shared:
        notes.append(f"The same for all curves: {'; '.join(group.shared)}.")
    notes += style.explain(series.label for series in group.series)
    for series in group.series:
        name = ", ".join(filter(None, (style.names[series.label], series.panel)))
        odd = [f"{x}" for x, c in series.cells.items() if c.values and c.estimate.mean is None]
        if odd:
            notes.append(f"{name}: not finite at {', '.join(odd)}, so no point is drawn there.")
    return notes


def _points_in_words(curve: Curve, metric: Metric) -> str:
    points = [f"{metric.format(y)} at {label(x)}" for x, y in curve.finite]
    chosen = "".join(f", chosen {label(curve.x[i])}" for i in curve.rings)
    return f"{curve.label}: {', '.join(points) or 'no value'}{chosen}"


def _end_in_words(curve: Curve, metric: Metric) -> str:
    ends = curve.finite
    return f"{curve.label} ends at {metric.format(ends[-1][1])}" if ends else ""


def _figure(
    name: str,
    title: str,
    metric: Metric,
    x_label: str,
    panels: Mapping[str, Sequence[Curve]],
    notes: Sequence[str],
    unequal: str | None = None,
    *,
    in_words: Callable[[Curve, Metric], str] = _points_in_words,
    marks: Mapping[str, tuple[int, ...]] | None = None,
    **look: Any,
) -> Figure | None:
    """A figure of curves by panel, all on one scale and of one size; None if no value is finite.

    The range of y covers the means, with some room. Bands beyond it are cut. `look` has fields of a
    Panel.
    """
    every = [curve for curves in panels.values() for curve in curves]
    values = [value for curve in every for _, value in curve.finite]
    if not values:
        return None
    low, high = min(values), max(values)
    log = not metric.is_fraction and low > 0 and high / low > LOG_RATIO
    if metric.is_fraction:
        low, high = FRACTION_RANGE
    elif log:
        room = (high / low) ** 0.06
        low, high = low / room, high * room
    else:
        room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = low - room, high + room
    y_label = f"{metric.label} (log scale)" if log else metric.label
    look = {"ticks": None, "log_y": log, "y_range": (low, high), **look}
    drawn = [
        Panel(panel, x_label, y_label, tuple(curves), marks=(marks or {}).get(panel, ()), **look)
        for panel, curves in panels.items()
    ]
    room = max(panel.label_length for panel in drawn)
    drawings = tuple(
        Drawing(
            partial(draw_panel, replace(panel, room=room)),
            f"{name}-{i}",
            f"{title}: {panel.title}" if panel.title else title,
            "; ".join(filter(None, (in_words(curve, metric) for curve in panel.curves))),
            panel.curves,
        )
        for i, panel in enumerate(drawn)
    )
    cut = () if metric.is_fraction else _cut_bands(metric, every, low, high)
    return Figure(title, drawings, (*notes, *cut, *filter(None, [unequal])))


def _cut_bands(metric: Metric, curves: Iterable[Curve], low: float, high: float) -> Iterator[str]:
    beyond: dict[str, float] = {}
    for curve in curves:
        outside = [end for end in (*curve.low, *curve.high) if end < low or end > high]
        if outside:
            beyond[curve.label] = max(outside, key=abs)
    if beyond:
        words = "; ".join(f"{name} reaches {metric.format(end)}" for name, end in beyond.items())
        yield f"Bands are cut at the edge: {words}."


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
