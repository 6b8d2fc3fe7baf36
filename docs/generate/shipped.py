"""The sweep files that come with fope-lab."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def sweep_files() -> list[Path]:
    """Every shipped sweep file."""
    return sorted((ROOT / "sweeps").rglob("*.yaml"))
