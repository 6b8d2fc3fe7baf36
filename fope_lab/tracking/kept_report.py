"""The last report of a sweep, kept in the store so that `sync` can send it without the sweep file.

report.meta.json   the report's numbers and the names of its files, which are beside it
cells.json         the mean over seeds of each cell, see cells.py
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.atomic_files import read_json, write_atomic, write_json
from fope_lab.tracking.cells import CellRecord, cells_json, parse_cells

REPORT, CELLS, PICTURES = "report.meta.json", "cells.json", "pictures.json"
FIGURES = "figures"
UNNAMED_FILES = ("report.html", "report.json")
"""The files of reports that were saved by versions which did not record file names."""


@dataclass(frozen=True)
class ReportContent:
    """What MLflow's run `summary` is to have of a report.

    `content` is a digest of the files and the metrics, and `time` the moment (ms since 1970) at
    which they last changed.
    """

    content: str
    time: int
    metrics: Mapping[str, float]
    files: Sequence[Path]


@dataclass(frozen=True)
class Pictures:
    """The pictures of a report; `of` is a digest of what they show."""

    of: str
    files: Sequence[Path]


class KeptReport:
    """The report of a sweep in `folder`, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(
        self, files: Sequence[Path], metrics: Mapping[str, float], cells: Sequence[CellRecord]
    ) -> None:
        """Copy a report into the store; an identical report keeps its time."""
        contents = {file.name: file.read_bytes() for file in files}
        for name, content in contents.items():
            write_atomic(self._folder / name, content)
        digest = _digest(metrics, contents.values())
        known = self._meta()
        if known is None or known.content != digest:
            write_json(
                self._folder / REPORT,
                {
                    "content": digest,
                    "time": time.time_ns() // 1_000_000,
                    "metrics": dict(metrics),
                    "files": list(contents),
                },
            )
        if self.cells() != tuple(cells):
            write_atomic(self._folder / CELLS, cells_json(cells))

    def keep_pictures(self, of: str, draw: Callable[[], Mapping[str, bytes]]) -> None:
        """Keep what `draw` makes, by the names of files, unless pictures `of` the same are kept."""
        known = self.pictures()
        if known is not None and known.of == of and all(file.is_file() for file in known.files):
            return
        drawn = draw()
        for name, content in drawn.items():
            write_atomic(self._folder / FIGURES / name, content)
        write_json(self._folder / PICTURES, {"of": of, "files": list(drawn)})
        for file in (self._folder / FIGURES).glob("*"):
            if file.name not in drawn:
                file.unlink(missing_ok=True)

    def pictures(self) -> Pictures | None:
        """The pictures of the report, or None if there is no whole record of them."""
        raw = read_json(self._folder / PICTURES)
        if not isinstance(raw, dict) or not isinstance(raw.get("of"), str):
            return None
        names = raw.get("files")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
        return Pictures(raw["of"], [self._folder / FIGURES / name for name in names])

    def content(self) -> ReportContent | None:
        """The report, or None if there is none that is whole."""
        meta = self._meta()
        if meta is None:
            return None
        try:
            contents = [file.read_bytes() for file in meta.files]
        except OSError:
            return None
        return meta if _digest(meta.metrics, contents) == meta.content else None

    def digest(self) -> str | None:
        """The digest of the report; its files are not read."""
        meta = self._meta()
        return None if meta is None else meta.content

    def metrics(self) -> Mapping[str, float]:
        """The numbers of the report; its files are not read. Empty if there is no report."""
        meta = self._meta()
        return {} if meta is None else meta.metrics

    def cells(self) -> tuple[CellRecord, ...] | None:
        """The cells of the report, or None if they are missing or damaged."""
        try:
            return parse_cells((self._folder / CELLS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def cells_mark(self) -> tuple[int, int] | None:
        """What tells the cells from those that replace them, without reading them; None if there
        are none."""
        try:
            status = (self._folder / CELLS).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _meta(self) -> ReportContent | None:
        raw = read_json(self._folder / REPORT)
        if not isinstance(raw, dict):
            return None
        content, moment, metrics = (raw.get(name) for name in ("content", "time", "metrics"))
        names = raw.get("files", list(UNNAMED_FILES))
        if not (isinstance(content, str) and isinstance(moment, int)):
            return None
        if not (isinstance(metrics, dict) and isinstance(names, list)):
            return None
        numbers = all(isinstance(value, int | float) for value in metrics.values())
        if not numbers or not all(isinstance(name, str) for name in names):
            return None
        return ReportContent(content, moment, metrics, [self._folder / name for name in names])


def _digest(metrics: Mapping[str, float], contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256(json.dumps(dict(metrics), sort_keys=True).encode())
    for content in contents:
        digest.update(content)
    return digest.hexdigest()
