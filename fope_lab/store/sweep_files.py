"""Which file the report of a sweep came from: `reports/NAME/sweep.json` in the store."""

from __future__ import annotations

from pathlib import Path

from fope_lab.atomic_files import read_json, write_json

REPORTS = "reports"
"""The folder of the store that has a folder for the report of each sweep."""


class SweepFiles:
    """The sweep files that the store `root` knows, by the names of their sweeps."""

    def __init__(self, root: Path) -> None:
        self._reports = root / REPORTS

    def keep(self, sweep: str, path: Path) -> None:
        """Remember the file of a sweep."""
        write_json(self._path(sweep), {"path": str(path)})

    def of(self, sweep: str) -> Path | None:
        """The file that the sweep of this name came from when it last ran, or None."""
        content = read_json(self._path(sweep))
        if content is None:  # the report of an old store has it, too
            report = read_json(self._reports / sweep / "report.json")
            content = report.get("sweep") if isinstance(report, dict) else None
        path = content.get("path") if isinstance(content, dict) else None
        return Path(path) if isinstance(path, str) else None

    def _path(self, sweep: str) -> Path:
        return self._reports / sweep / "sweep.json"
