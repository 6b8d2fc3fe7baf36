"""The files of a report, and the one place that writes them.

A report is never replaced by one that lacks a finished stage which it has, as the first report of a
sweep does whose file was edited: it is kept beside the new one, in a folder with its time.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import read_json, write_atomic
from fope_lab.report.build import Report
from fope_lab.report.render.html import render_html
from fope_lab.report.render.json import render_json
from fope_lab.report.render.markdown import render_markdown

REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)
EARLIER = "before-"
"""The name of a folder with an earlier report begins like this, and ends with its time."""


@dataclass(frozen=True)
class WrittenReport:
    """The page of a report, and the folder of the report before if it has stages that this lacks.

    `lost` is the number of these stages.
    """

    page: Path
    earlier: Path | None = None
    lost: int = 0

    def __str__(self) -> str:
        """Where the report is, and where the one before."""
        if self.earlier is None:
            return str(self.page)
        stages = f"{self.lost} more finished stage{'s' * (self.lost != 1)}"
        return f"{self.page} (the previous report has {stages}: {self.earlier / REPORT_HTML})"


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write REPORT_FILES into `folder`; a report there that has more is kept."""
    earlier, lost = _keep_earlier(report, folder)
    write_atomic(folder / REPORT_JSON, render_json(report) + "\n")
    write_atomic(folder / REPORT_MARKDOWN, render_markdown(report))
    write_atomic(folder / REPORT_HTML, render_html(report))
    return WrittenReport(folder / REPORT_HTML, earlier, lost)


def _keep_earlier(report: Report, folder: Path) -> tuple[Path | None, int]:
    """Keep the report in `folder` if it has a finished stage that the new one lacks.

    Returns the folder that has it now, and the number of these stages. A report that was kept
    before with the same numbers is not kept twice.
    """
    before = _content(folder)
    lost = _finished(before) - {one.stage.key for one in report.stages if one.state.is_done}
    if not lost:
        return None, 0
    kept = (path for path in folder.glob(f"{EARLIER}*") if _is_same(_content(path), before))
    if known := next(kept, None):
        return known, len(lost)
    time = str(before.get("generated"))[:19].replace(":", "-").replace("/", "-")
    names = (f"{EARLIER}{time}{f'-{n}' if n else ''}" for n in itertools.count())
    earlier = next(folder / name for name in names if not (folder / name).exists())
    earlier.mkdir()
    for name in REPORT_FILES:
        if (folder / name).exists():
            os.link(folder / name, earlier / name)  # what replaces the file leaves the link alone
    return earlier, len(lost)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two reports have the same finished stages with the same numbers."""
    return _finished(one) == _finished(other) and one.get("cells") == other.get("cells")


def _content(folder: Path) -> Mapping[str, Any]:
    """The JSON of the report in a folder; empty if there is none that can be read."""
    content = read_json(folder / REPORT_JSON)
    return content if isinstance(content, dict) else {}


def _finished(content: Mapping[str, Any]) -> set[str]:
    """The keys of the finished stages of a report."""
    stages = content.get("stages")
    found = [one for one in stages if isinstance(one, dict)] if isinstance(stages, list) else []
    return {str(one.get("key")) for one in found if one.get("state") == "done"}
