"""The files of a report, and the one place that writes them.

INPUTS records what the files were made from, and their digests. They are made anew only if what
they are made from has changed, or if one of them is missing or damaged.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import platform
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.atomic_files import read_json, sha256_file, write_atomic, write_json
from fope_lab.config.problems import UserError
from fope_lab.report.build import Report
from fope_lab.report.render.documents import label_of, render_html, render_markdown
from fope_lab.report.render.figures import Drawing, draw_figures
from fope_lab.report.render.json import render_json, report_json
from fope_lab.stages.metric import ARRAYS
from fope_lab.store.folder import StageFolder
from fope_lab.store.source import package_digest

REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)
INPUTS = "report.inputs.json"
"""The file with the fingerprint that a report was made from, and the digests of its files."""
DRAWN_WITH = ("jinja2", "markupsafe", "matplotlib", "numpy", "pyyaml", "scipy")
"""The packages whose versions can change a page."""
LONGEST_NAME = 100
"""How many characters of a figure's title its files have."""


class FigureError(UserError):
    """The folder that figures are to be written into can't be used."""


@dataclass(frozen=True)
class WrittenReport:
    """The page of a report; `unchanged` says that it was made earlier, from the same."""

    page: Path
    unchanged: bool = False

    def __str__(self) -> str:
        return f"{self.page} (unchanged)" if self.unchanged else str(self.page)


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write REPORT_FILES into `folder`. Files that were made from the same inputs are left as they
    are."""
    made_from, page = fingerprint(report), folder / REPORT_HTML
    with contextlib.suppress(OSError):
        digests = {name: sha256_file(folder / name) for name in REPORT_FILES}
        if read_json(folder / INPUTS) == {"inputs": made_from, "files": digests}:
            return WrittenReport(page, unchanged=True)
    contents = {
        REPORT_JSON: f"{render_json(report)}\n".encode(),
        REPORT_MARKDOWN: render_markdown(report).encode(),
        REPORT_HTML: render_html(report).encode(),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write_json(folder / INPUTS, {"inputs": made_from, "files": digests})
    return WrittenReport(page)


def fingerprint(report: Report) -> str:
    """The SHA-256 of all that the files of `report` follow from, but for its date.

    The JSON and the Markdown hold most of it. The page adds figures, configurations, times and
    links, and is not made for this, since drawing takes long.
    """
    figures = [group.key for group in report.figure_groups]
    settings = [group.title for group in report.figure_settings]
    parts = [
        _code_digest(),
        json.dumps({**report_json(report), "generated": None}),
        render_markdown(report),
        *map(repr, (figures, settings, report.training_curves, report.summary)),
        repr(report.links),
    ]
    for result in report.stages:
        stage = result.stage
        parents = (dict(stage.parents), dict(stage.checkpoints))
        shown = (result.record.recorded, result.folder, result.started, result.finished)
        parts.append(repr((stage.config, parents, *shown)))
    for analysis in report.analyses:
        checkpoint = StageFolder(analysis.folder).checkpoint()
        arrays = None if checkpoint is None else checkpoint.path / ARRAYS
        parts.append(sha256_file(arrays) if arrays and arrays.is_file() else "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def _code_digest() -> str:
    versions = {name: importlib.metadata.version(name) for name in DRAWN_WITH}
    parts = [platform.python_version(), versions, package_digest()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


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
