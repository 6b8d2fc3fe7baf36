"""The checkout that the code runs from, and the versions of what it needs."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fope_lab.store.source import ROOT

PACKAGES = ("fope-lab", "torch", "ray", "mlflow", "transformers", "datasets", "numpy")
"""The packages whose versions are recorded."""
COMMIT_DIGITS = 12


@dataclass(frozen=True)
class Checkout:
    """A commit, and whether the code differs from it: `clean` counts untracked files as changes.

    As text it is the commit, with `+` if the code differs.
    """

    commit: str
    clean: bool

    @classmethod
    def current(cls) -> Self | None:
        """The checkout that this code runs from, or None if it is installed without one."""
        if not (ROOT / ".git").exists():
            return None
        try:
            commit = _git("rev-parse", f"--short={COMMIT_DIGITS}", "HEAD")
            changed = _git(
                *("status", "--porcelain", "--untracked-files=all", "--", "fope_lab", "trainers")
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return cls(commit, not changed)

    @classmethod
    def recorded(cls, made_by: Mapping[str, Any]) -> Self | None:
        """The checkout that an attempt recorded, or None if it recorded none."""
        commit = made_by.get("commit")
        return None if commit is None else cls(commit, bool(made_by.get("clean")))

    def __str__(self) -> str:
        return self.commit if self.clean else f"{self.commit}+"


@functools.cache
def package_versions() -> dict[str, str]:
    """The version of Python, and of each of PACKAGES."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
