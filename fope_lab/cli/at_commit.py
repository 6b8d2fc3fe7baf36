"""A sweep file as it was at a commit of its git repository: FILE@COMMIT."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.cli.inputs import load_single_sweep

if TYPE_CHECKING:
    from fope_lab.store import Store
    from fope_lab.sweep import Sweep

DIGITS = 12
"""How many digits of a commit are shown."""


def load_at_commit(text: str, store: Store | None = None) -> tuple[Sweep, str | None]:
    """The sweep of FILE or of FILE@COMMIT, and the commit, if one is named.

    FILE may also be the name of a sweep that comes with fope-lab. Only the file itself is that of
    the commit: what it refers to is as it is now. Raises SweepError for what can't be read.
    """
    name, at, commit = text.rpartition("@")
    if not at or Path(text).exists():
        return load_single_sweep(text, store), None
    from fope_lab.sweep import Problem, SweepError
    from fope_lab.sweep.load import parse_sweep

    path = _file(name).absolute()
    if path.is_dir():
        message = f"found @{commit} after a folder, needs a sweep file"
        raise SweepError(Problem((), message, file=path))
    folder = next(parent for parent in path.parents if parent.is_dir())
    try:
        _git(folder, "rev-parse", "--show-toplevel")
    except (OSError, subprocess.CalledProcessError) as error:
        message = f"found @{commit}, but {folder} is in no git repository; leave out the @{commit}"
        raise SweepError(Problem((), message, file=path)) from error
    try:
        full = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError as error:
        message = f"found @{commit}, which is not a commit, branch or tag of its git repository"
        raise SweepError(Problem((), message, file=path)) from error
    try:
        content = _git(folder, "show", f"{full}:./{path.relative_to(folder).as_posix()}")
    except subprocess.CalledProcessError as error:
        message = f"is not in commit {full[:DIGITS]}"
        raise SweepError(Problem((), message, file=path)) from error
    return parse_sweep(content, path, store), full[:DIGITS]


def _file(name: str) -> Path:
    """The file that a word of the user means; it may be gone since the commit."""
    from fope_lab.config.problems import SweepError
    from fope_lab.config.shipped import sweep_path

    try:
        return sweep_path(name)
    except SweepError:
        return Path(name)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
