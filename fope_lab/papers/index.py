"""The published tables and figures that can stand beside a sweep's own numbers, by name."""

from __future__ import annotations

from pathlib import Path

PAPERS = Path(__file__).parent


def paper_names() -> list[str]:
    """The names of all published tables and figures, such as fope/table2."""
    files = sorted(PAPERS.rglob("*.yaml"))
    return [file.relative_to(PAPERS).with_suffix("").as_posix() for file in files]


def paper_path(name: str) -> Path:
    """The file of the table or figure with this name."""
    return PAPERS / f"{name}.yaml"
