"""What the words FILE and CHECKPOINT of a command mean: sweeps, and models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.config.problems import Problem, SweepError, shown

if TYPE_CHECKING:
    from fope_lab.store import Store
    from fope_lab.sweep import Sweep


def load_sweeps(paths: Sequence[str], store: Store | None = None) -> list[Sweep]:
    """The sweeps of files, of folders and of names (fope_lab/config/shipped.py); `store` knows
    local files that are gone.

    Raises SweepError with the problems of all of them.
    """
    from fope_lab.config.shipped import sweep_path
    from fope_lab.sweep import load_sweep

    problems: list[Problem] = []
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
    by_name: dict[str, Sweep] = {}
    for file in unique.values():
        try:
            sweep = load_sweep(file, store)
        except SweepError as error:
            problems += error.problems
            continue
        if sweep.name in by_name:
            message = f"sweep name {sweep.name!r} is already used in {by_name[sweep.name].path}"
            problems.append(Problem(("name",), message, file=sweep.path))
        by_name.setdefault(sweep.name, sweep)
    if problems:
        raise SweepError(problems)
    return list(by_name.values())


def load_single_sweep(path: str, store: Store | None = None) -> Sweep:
    """The sweep of a file. Raises SweepError, also for a folder of several sweep files."""
    first, *others = load_sweeps([path], store)
    if others:
        files = ", ".join(sweep.path.name for sweep in (first, *others))
        message = f"needs one sweep file, but this folder has {1 + len(others)}: {files}"
        raise SweepError(Problem((), message, file=Path(path)))
    return first


def name_of_sweep(path: str) -> str:
    """The name of the sweep in a file, which may otherwise be wrong: it may have been edited since
    it was run. Raises SweepError if there is none."""
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
    from fope_lab.housekeeping.known_stages import find_known_stage
    from fope_lab.model.hub import PREFIX
    from fope_lab.store import Store

    place = Store.open(store)
    if word.startswith(PREFIX) or Path(word).exists():
        return word
    try:
        if place.root.is_dir():
            return str(find_known_stage(place, word).folder.path)
        faults = [f"no store at {place}"]
    except SweepError as error:
        faults = [f"in the store {place}: {problem.message}" for problem in error.problems]
    if "/" in word:
        return word  # what reads it says that there is no such folder
    told = f"there is no folder {word} here, and "
    raise SweepError([Problem(("CHECKPOINT",), f"{told}{fault}") for fault in faults])
