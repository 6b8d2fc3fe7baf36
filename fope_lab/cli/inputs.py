"""What the words FILE and CHECKPOINT of a command mean: sweeps, and models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def checkpoint_places(words: Iterable[str], store: str) -> list[str]:
    """Each word as a path or as a model of the hub.

    A word that names nothing in the current folder is a stage of the folder `store`: its name in
    the sweep file, its label or the beginning of its key, as plan and status show them. Raises
    SweepError for a word that means nothing, or several stages.
    """
    return [_place(word, store) for word in words]


def _place(word: str, store: str) -> str:
    from fope_lab.model.hub import PREFIX
    from fope_lab.store import Store

    place = Store.open(store)
    if word.startswith(PREFIX) or Path(word).exists():
        return word
    from fope_lab.config.problems import Problem, SweepError
    from fope_lab.housekeeping.known_stages import find_known_stage

    if not place.root.is_dir():
        if "/" in word:
            return word  # what reads it says that there is no such folder
        fault = f"there is no folder {word} here, and no store at {place}"
        raise SweepError(Problem(("CHECKPOINT",), fault))
    try:
        return str(find_known_stage(place, word).folder.path)
    except SweepError as error:
        if "/" in word:
            return word  # as above
        told = f"there is no folder {word} here, and in the store {place}: "
        problems = [Problem(("CHECKPOINT",), f"{told}{each.message}") for each in error.problems]
        raise SweepError(problems) from None
