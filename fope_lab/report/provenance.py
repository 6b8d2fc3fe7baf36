"""What produced a report: versions, the code's commit and the machine, to trace a number back."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = ("fope-lab", "torch", "ray", "mlflow", "transformers", "datasets", "numpy")


def provenance(sweep: Path) -> dict[str, str]:
    """Versions, commit (with `+` if the checkout was changed), machine, and the sweep file."""
    facts = {"sweep file": str(sweep), "python": platform.python_version()}
    for name in PACKAGES:
        facts[name] = importlib.metadata.version(name)
    if commit := _commit():
        facts["commit"] = commit
    facts["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
    return facts


def _commit() -> str | None:
    """The commit of the checkout that this package is run from, or None if it is installed."""
    folder = Path(__file__).parents[1]
    if not (folder.parent / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(folder))
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
