"""The files of a report, and the one place that writes them."""

from __future__ import annotations

from pathlib import Path

from fope_lab.atomic_files import write_atomic
from fope_lab.report.build import Report
from fope_lab.report.render.html import render_html
from fope_lab.report.render.json import render_json
from fope_lab.report.render.markdown import render_markdown

REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)


def write_report(report: Report, folder: Path) -> Path:
    """Write REPORT_FILES into `folder`; returns the path of the page."""
    write_atomic(folder / REPORT_JSON, render_json(report) + "\n")
    write_atomic(folder / REPORT_MARKDOWN, render_markdown(report))
    write_atomic(folder / REPORT_HTML, render_html(report))
    return folder / REPORT_HTML
