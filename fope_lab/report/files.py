"""The files of a report, and the one place that writes them.

A report is never replaced by one that lacks a finished stage which it has, as the first report of a
sweep does whose file was edited: it is kept beside the new one, in a folder with its time.

INPUTS records what the files were made from, and their digests. They are made anew only if what
they are made from has changed, or if one of them is missing or damaged.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.analysis.base import ARRAYS
from fope_lab.atomic_files import read_json, sha256_file, write_atomic, write_json
from fope_lab.config.problems import UserError, counted
from fope_lab.provenance.source import package_digest
from fope_lab.report.build import Report
from fope_lab.report.render.figures import Drawing, draw_figures
from fope_lab.report.render.html import render_html
from fope_lab.report.render.json import render_json, report_json
from fope_lab.report.render.latex import label_of
from fope_lab.report.render.markdown import render_markdown
from fope_lab.store import StageFolder

REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN = "report.html", "report.json", "report.md"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, REPORT_MARKDOWN)
INPUTS = "report.inputs.json"
"""The file with the fingerprint that a report was made from, and the digests of its files."""
EARLIER = "before-"
"""The name of a folder with an earlier report begins like this, and ends with its time."""
DRAWN_WITH = ("jinja2", "markupsafe", "matplotlib", "numpy", "pyyaml", "scipy")
"""The packages whose versions can change a page."""
LONGEST_NAME = 100
"""How many characters of a figure's title its files have."""


class FigureError(UserError):
    """The folder that figures are to be written into can't be used."""


@dataclass(frozen=True)
class WrittenReport:
    """The page of a report, and the folder of the report before if it has stages that this lacks.

    `lost` is the number of these stages. `unchanged` says that the files were made earlier, from
    the same.
    """

    page: Path
    earlier: Path | None = None
    lost: int = 0
    unchanged: bool = False

    def __str__(self) -> str:
        if self.unchanged:
            return f"{self.page} (unchanged)"
        if self.earlier is None:
            return str(self.page)
        stages = counted(self.lost, "more finished stage")
        return f"{self.page} (the previous report has {stages}: {self.earlier / REPORT_HTML})"


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write REPORT_FILES into `folder`; a report there that has more is kept. Files that were made
    from the same inputs are left as they are."""
    made_from, page = fingerprint(report), folder / REPORT_HTML
    with contextlib.suppress(OSError):
        digests = {name: sha256_file(folder / name) for name in REPORT_FILES}
        if read_json(folder / INPUTS) == {"inputs": made_from, "files": digests}:
            return WrittenReport(page, unchanged=True)
    earlier, lost = _keep_earlier(report, folder)
    contents = {
        REPORT_JSON: f"{render_json(report)}\n".encode(),
        REPORT_MARKDOWN: render_markdown(report).encode(),
        REPORT_HTML: render_html(report).encode(),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write_json(folder / INPUTS, {"inputs": made_from, "files": digests})
    return WrittenReport(page, earlier, lost)


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
        *map(repr, (figures, settings, report.training_curves, report.settings, report.summary)),
        repr(report.links),
    ]
    for result in report.stages:
        stage = result.stage
        parents = (dict(stage.parents), dict(stage.checkpoints))
        parts.append(repr((stage.config, parents, result.folder, result.started, result.finished)))
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


def _keep_earlier(report: Report, folder: Path) -> tuple[Path | None, int]:
    """Keep a report that has finished stages which the new one lacks: its folder, their number."""
    before = _content(folder)
    lost = _finished(before) - {one.stage.key for one in report.stages if one.state.is_done}
    if not lost:
        return None, 0
    for path in folder.glob(f"{EARLIER}*"):
        kept = _content(path)
        if _finished(kept) == _finished(before) and kept.get("cells") == before.get("cells"):
            return path, len(lost)
    time = str(before.get("generated"))[:19].replace(":", "-").replace("/", "-")
    names = (f"{EARLIER}{time}{f'-{n}' if n else ''}" for n in itertools.count())
    earlier = next(folder / name for name in names if not (folder / name).exists())
    earlier.mkdir()
    for name in REPORT_FILES:
        if (folder / name).exists():
            os.link(folder / name, earlier / name)  # what replaces the file leaves the link alone
    return earlier, len(lost)


def _content(folder: Path) -> Mapping[str, Any]:
    content = read_json(folder / REPORT_JSON)
    return content if isinstance(content, dict) else {}


def _finished(content: Mapping[str, Any]) -> set[str]:
    stages = content.get("stages")
    found = [one for one in stages if isinstance(one, dict)] if isinstance(stages, list) else []
    return {str(one.get("key")) for one in found if one.get("state") == "done"}
