"""The page: one HTML file that contains its style, figures and script, and loads nothing.

Without the script the page has everything; with it, curves can be switched off, and the values
under the pointer are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING

from fope_lab.config.problems import counted
from fope_lab.drawing.svg import style_variables
from fope_lab.report.build import Report
from fope_lab.report.compare.differences import meaning
from fope_lab.report.render.claims_view import (
    count_verdicts,
    describe_tests,
    group_by_basis,
    seed_lines,
)
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.tables import PAPER_TITLE, compared_texts, our_entry, report_tables
from fope_lab.report.results.stage_results import StageResult
from fope_lab.report.results.summary import speed_of
from fope_lab.store.attempts import TimeTaken, over_attempts

if TYPE_CHECKING:
    from markupsafe import Markup


def render_html(report: Report) -> str:
    """Render the page; all text that comes from a sweep is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("fope_lab.report.render", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "compared_texts": compared_texts,
        "count": format_count,
        "hours": _format_hours,
        "moment": format_moment,
        "our_entry": our_entry,
        "seconds": format_seconds,
        "speed": _format_speed,
        "time_taken": _format_time_taken,
        "yaml": _format_yaml,
    }
    colours = {"light": style_variables(dark=False), "dark": style_variables(dark=True)}
    lost = report.summary.time_lost
    return environment.get_template("report.html.j2").render(
        report=report,
        style=Markup(environment.get_template("report.css.j2").render(colours)),
        script=Markup((files("fope_lab.report.render") / "report.js").read_text("utf-8")),
        figures=[(figure, list(map(Markup, figure.drawings))) for figure in draw_figures(report)],
        tables=report_tables(report),
        best=meaning(report.seed_test),
        trainings=lost and counted(lost.trainings, "training"),
        counts=count_verdicts(report.verdicts),
        claims_by_basis=[*group_by_basis(report.verdicts)],
        claim_tests=describe_tests(report.verdicts),
        seed_lines=[*seed_lines(report)],
        paper_title=PAPER_TITLE,
        labels={result.stage.key: result.stage.label for result in report.stages},
        links=_web_addresses(report.links.addresses),
        views=_web_addresses(report.links.views),
        started=min((r.started for r in report.stages if r.started), default=None),
        finished=max((r.finished for r in report.stages if r.finished), default=None),
    )


def _breakable(label: str) -> Markup:
    """A label that a narrow page breaks at its dots, brackets and commas."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([.,\[]|(?<=\w)(?=\())", r"\1<wbr>", str(escape(label))))


def _web_addresses(links: Mapping[str, str]) -> dict[str, str]:
    """The links that start with http or https, so that none can run a script."""
    return {name: url for name, url in links.items() if url.startswith(("http://", "https://"))}


def format_count(value: float | None) -> str:
    """Format a large number in about four characters: 1.2M, 10B."""
    if value is None:
        return "–"
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def format_seconds(seconds: float | None) -> str:
    """Format a duration: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _format_time_taken(taken: TimeTaken | None) -> str:
    if taken is None:
        return "–"
    return over_attempts(format_seconds(taken.seconds), taken.attempts)


def _format_speed(result: StageResult) -> str:
    tokens, utilisation = speed_of(result)
    return format_count(tokens) + ("" if utilisation is None else f" ({utilisation:.0%} MFU)")


def _format_hours(hours: float) -> str:
    """Format hours with three significant digits: 0.00123, 1.23, 123, 1,230."""
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def format_moment(moment: datetime | float | None) -> str:
    """Format a moment, given as a datetime or as seconds since 1970, to the minute in UTC."""
    if moment is None:
        return "–"
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _format_yaml(value: object) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=None)
