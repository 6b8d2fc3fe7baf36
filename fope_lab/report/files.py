"""The files of a report, and the one place that writes them.

INPUTS records what the files were made from, their digests, and what is printed of the report. They
are made anew only if what they are made from has changed, or if one of them is missing or damaged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.atomic_files import read_json, sha256_file, write_atomic, write_json
from fope_lab.config.problems import UserError
from fope_lab.report.build import Report, digest_of_texts
from fope_lab.report.render.documents import label_of, render_html, render_markdown
from fope_lab.report.render.figures import Drawing, draw_figures
from fope_lab.report.render.json import render_json
from fope_lab.report.render.terminal import report_text

REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)
INPUTS = "report.inputs.json"
"""The file with the fingerprint that a report was made from, and the digests of its files."""
LONGEST_NAME = 100
"""How many characters of a figure's title its files have."""


class FigureError(UserError):
    """The folder that figures are to be written into can't be used."""


@dataclass(frozen=True)
class WrittenReport:
    """The page of a report, and what is printed of it (render/terminal.py); `unchanged` says that
    it was made earlier, from the same."""

    page: Path
    text: str
    missing: Sequence[str]
    unchanged: bool = False

    def __str__(self) -> str:
        return f"{self.page} (unchanged)" if self.unchanged else str(self.page)


def unchanged_report(inputs: str, folder: Path) -> WrittenReport | None:
    """The report whose files are in `folder`, if it was made from these inputs and is whole."""
    kept = read_json(folder / INPUTS)
    with contextlib.suppress(OSError):
        match kept:
            case {"text": str(text), "missing": list(missing)}:
                if kept == _record(inputs, folder, text, missing):
                    return WrittenReport(folder / REPORT_HTML, text, missing, unchanged=True)
    return None


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write REPORT_FILES into `folder`. Files that were made from the same inputs are left as they
    are."""
    if (before := unchanged_report(report.inputs, folder)) is not None:
        return before
    contents = {
        REPORT_JSON: f"{render_json(report)}\n",
        REPORT_MARKDOWN: render_markdown(report),
        REPORT_HTML: render_html(report),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    text, missing = report_text(report), list(report.summary.missing)
    write_json(folder / INPUTS, _record(report.inputs, folder, text, missing))
    return WrittenReport(folder / REPORT_HTML, text, missing)


def _record(inputs: str, folder: Path, text: str, missing: Sequence[str]) -> dict[str, object]:
    """What INPUTS holds. What is printed has a digest too: a number of a damaged record is none."""
    return {
        "inputs": inputs,
        "files": {name: sha256_file(folder / name) for name in REPORT_FILES},
        "printed": digest_of_texts([text, repr(list(missing))]),
        "text": text,
        "missing": missing,
    }


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure's panels into `folder` as SVG and as PDF; returns the files. Raises
    FigureError if the folder can't be written."""
    if folder.exists() and not folder.is_dir():
        raise FigureError(f"{folder} is a file, needs a folder")
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, panel in named_panels(report).items():
            for suffix, content in ((".svg", panel.svg().encode()), (".pdf", panel.pdf())):
                written.append(folder / f"{name}{suffix}")
                write_atomic(written[-1], content)
    except OSError as error:
        raise FigureError(f"{folder} can't be written: {error.strerror or error}") from error
    return written


def named_panels(report: Report) -> dict[str, Drawing]:
    """The panels of all figures by the names of their files, without the endings. A file is named
    after its figure; files that would have the same name are numbered."""
    panels: dict[str, list[Drawing]] = {}
    for figure in draw_figures(report):
        panels.setdefault(label_of(figure.title)[:LONGEST_NAME], []).extend(figure.panels)
    return {
        name if len(of) == 1 else f"{name}-{i}": panel
        for name, of in panels.items()
        for i, panel in enumerate(of, 1)
    }
