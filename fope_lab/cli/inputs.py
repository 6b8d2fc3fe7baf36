"""Loads the sweeps that a command names by their files or folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fope_lab.store import Store
    from fope_lab.sweep import Sweep


def load_sweeps(paths: Sequence[str], store: Store | None = None) -> list[Sweep]:
    """The sweeps of files, of folders and of names (fope_lab/config/shipped.py); `store` knows
    local files that are gone.

    Raises SweepError with the problems of all of them.
    """
    from fope_lab.config.shipped import sweep_path
    from fope_lab.sweep import Problem, SweepError, load_sweep

    sweeps, problems = [], []
    unique: dict[Path, Path] = {}  # a file that is named twice is one sweep
    for word in paths:
        try:
            path = sweep_path(word)
        except SweepError as error:
            problems += error.problems
            continue
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        if not files:
            problems.append(Problem((), "this folder has no sweep file (*.yaml)", file=path))
        for file in files:
            unique.setdefault(file.resolve(), file)
    for file in unique.values():
        try:
            sweeps.append(load_sweep(file, store))
        except SweepError as error:
            problems += error.problems
    by_name: dict[str, Path] = {}
    for sweep in sweeps:
        other = by_name.setdefault(sweep.name, sweep.path)
        if other != sweep.path:
            message = f"sweep name {sweep.name!r} is already used in {other}"
            problems.append(Problem(("name",), message, file=sweep.path))
    if problems:
        raise SweepError(problems)
    return sweeps


def load_single_sweep(path: str, store: Store | None = None) -> Sweep:
    """The sweep of a file. Raises SweepError, also for a folder of several sweep files."""
    from fope_lab.sweep import Problem, SweepError

    sweeps = load_sweeps([path], store)
    if len(sweeps) > 1:
        files = ", ".join(sweep.path.name for sweep in sweeps)
        message = f"needs one sweep file, but this folder has {len(sweeps)}: {files}"
        raise SweepError(Problem((), message, file=Path(path)))
    return sweeps[0]


def name_of_sweep(path: str) -> str:
    """The name of the sweep in a file, which may otherwise be wrong: it may have been edited since
    it was run. Raises SweepError if there is none."""
    from fope_lab.config.problems import Problem, SweepError, shown
    from fope_lab.config.shipped import sweep_path
    from fope_lab.config.yaml_document import Document
    from fope_lab.sweep.sweep_file import no_mapping

    document = Document(sweep_path(path))
    content = document.value
    if not isinstance(content, dict):
        problem = no_mapping(content)
    elif "name" not in content:
        problem = Problem(("name",), "is missing")
    elif isinstance(name := content["name"], str):
        return name
    else:
        problem = Problem(("name",), f"found {shown(name)}", "text")
    raise SweepError(document.locate(problem))
