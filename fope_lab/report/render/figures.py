"""All figures of a report, in the order of the page."""

from __future__ import annotations

from fope_lab.report.build import Report
from fope_lab.report.render.analyses import draw_analyses
from fope_lab.report.render.curves import draw_curves
from fope_lab.report.render.figure import Figure
from fope_lab.report.render.heatmaps import draw_heatmaps


def draw_figures(report: Report) -> list[Figure]:
    """Draw the curves by context length, over a setting and by training step, the heat maps, and
    the analyses."""
    return [
        *draw_curves(
            report.figure_groups, report.training_curves, report.marks, report.figure_settings
        ),
        *draw_heatmaps(report.heatmaps),
        *draw_analyses(report.analyses),
    ]
