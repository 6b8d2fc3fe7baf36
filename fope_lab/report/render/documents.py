"""A report as documents: a page, Markdown and LaTeX, each by its template beside this file.

The page is one HTML file that contains its style, figures and script, and loads nothing. Without
the script it has everything; with it, curves can be switched off, and the values under the pointer
are shown. The Markdown, for a repository, an issue or a note, has everything but the figures; the
LaTeX, for a paper, has the tables and the claims, with the rules of booktabs. files.py
writes the first two, and `fope-lab report` prints the last two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fope_lab.config.console import plain
from fope_lab.config.problems import counted
from fope_lab.drawing.svg import style_variables
from fope_lab.report.build import Report
from fope_lab.report.compare.differences import meaning
from fope_lab.report.render.claims_view import (
    count_words,
    describe_tests,
    group_by_basis,
    seed_lines,
)
from fope_lab.report.render.figures import analysis_notes, analysis_numbers, draw_figures
from fope_lab.report.render.tables import (
    PAPER_TITLE,
    Table,
    TableEntry,
    compared_texts,
    our_entry,
    paper_table,
    report_tables,
)
from fope_lab.report.results.cells import StageResult
from fope_lab.report.results.summary import format_seconds, speed_of
from fope_lab.store.attempts import TimeTaken, over_attempts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEX_MARKS = {
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "block_start_string": "<%",
    "block_end_string": "%>",
    "comment_start_string": "<#",
    "comment_end_string": "#>",
}
"""Delimiters instead of Jinja's braces, which clash with LaTeX."""


def _environment(filters: Mapping[str, Any], **options: Any) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fope_lab.report.render", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.filters |= filters
    return environment


def _facts(report: Report) -> dict[str, Any]:
    """What every template is given."""
    return {
        "report": report,
        "summary": report.summary,
        "tables": report_tables(report),
        "counts": count_words(verdict.verdict for verdict in report.verdicts),
        "claims_by_basis": [*group_by_basis(report.verdicts)],
        "claim_tests": describe_tests(report.verdicts),
        "seed_lines": [*seed_lines(report)],
        "paper_title": PAPER_TITLE,
    }


def render_html(report: Report) -> str:
    """Render the page; all text that comes from a sweep is escaped."""
    from markupsafe import Markup

    filters = {
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
    environment = _environment(filters, autoescape=True)
    colours = {"light": style_variables(dark=False), "dark": style_variables(dark=True)}
    lost = report.summary.time_lost
    return environment.get_template("report.html.j2").render(
        **_facts(report),
        style=Markup(environment.get_template("report.css.j2").render(colours)),
        script=Markup((files("fope_lab.report.render") / "report.js").read_text("utf-8")),
        figures=[(figure, list(map(Markup, figure.drawings))) for figure in draw_figures(report)],
        best=meaning(report.seed_test),
        trainings=lost and counted(lost.trainings, "training"),
        labels={result.stage.key: result.stage.label for result in report.stages},
        links=_web_addresses(report.links.addresses),
        views=_web_addresses(report.links.views),
        started=min((r.started for r in report.stages if r.started), default=None),
        finished=max((r.finished for r in report.stages if r.finished), default=None),
    )


def render_markdown(report: Report) -> str:
    """Render all of the report but its figures."""
    filters = {
        "bullets": _bullets,
        "md": markdown_text,
        "notes": analysis_notes,
        "numbers": analysis_numbers,
        "paper_table": paper_table,
        "table": _table_markdown,
    }
    template = _environment(filters, keep_trailing_newline=True).get_template("report.md.j2")
    return template.render(_facts(report))


def render_latex(report: Report) -> str:
    """Render every table of the report, the comparison with the paper's numbers, and the claims."""
    filters = {"tex": latex_text, "line": _one_line, "label": label_of, "entry": _entry_latex}
    facts = _facts(report)
    if report.paper is not None and report.paper.numbers:
        facts["tables"] += (paper_table(report.paper),)
    made = "; ".join(f"{name}: {value}" for name, value in report.provenance.items())
    template = _environment(filters, **TEX_MARKS).get_template("report.tex.j2")
    return template.render(facts, made=made)


def _one_line(text: str) -> str:
    return " ".join(plain(text).split())


def markdown_text(text: str, marks: str = "\\`|<*[") -> str:
    """Escape text so that Markdown shows it unchanged, on one line. `marks` are the characters to
    escape."""
    return "".join(f"\\{mark}" if mark in marks else mark for mark in _one_line(text))


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _table_markdown(table: Table) -> str:
    """A table under its title, above its legend. The best of a column is bold."""
    rules = ["---" if i < len(table.labels) else "---:" for i in range(len(table.header))]
    lines = [[*map(markdown_text, table.header)], rules]
    for row in table.rows:
        entries = [
            f"**{markdown_text(entry.marked)}**" if entry.best else markdown_text(entry.marked)
            for entry in row.entries
        ]
        lines.append([*map(markdown_text, (*row.labels, row.seeds)), *entries])
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    title, legend = markdown_text(table.title), markdown_text(table.legend("Bold:"))
    return f"### {title}\n\n{grid}\n\n{legend}"


PLAIN = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "#$%&_"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "∞": r"$\infty$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"\S{}",
    "→": r"$\rightarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "·": r"$\cdot$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "π": r"$\pi$",
    "σ": r"$\sigma$",
    "\u00a0": "~",
}
"""What LaTeX would read as a command, and characters that its fonts lack."""
LIGATURE = re.compile(r"(?<=[-–])(?=[-–])|(?<=')(?=')|(?<=`)(?=`)|(?<=,)(?=,)|(?<=[?!])(?=`)")
"""Stands between two marks that LaTeX would join, such as two hyphens into a dash."""


def latex_text(text: str) -> str:
    """Text as LaTeX prints it, on one line."""
    parts = LIGATURE.split(_one_line(text))
    return "{}".join("".join(PLAIN.get(mark, mark) for mark in part) for part in parts)


def _entry_latex(entry: TableEntry) -> str:
    text = latex_text(entry.marked)
    return rf"\textbf{{{text}}}" if entry.best else text


def label_of(title: str) -> str:
    """A title as the name of a label or a file: lower case, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "untitled"


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
