"""What comes with fope-lab, found by name: sweeps, and published tables and figures.

Sweeps are at the top of the repository, and setup.py copies them into the package of a wheel.
"""

from __future__ import annotations

from pathlib import Path

from fope_lab.config.problems import Problem, SweepError, first_names, nearest_name

SUFFIX = ".yaml"
_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "shipped_sweeps", _PACKAGE.parent / "sweeps")
"""The folder in an installed wheel, and in a clone."""
PAPERS = _PACKAGE / "papers"


def shipped_folder() -> Path:
    return next((place for place in _PLACES if place.is_dir()), _PLACES[-1])


def shipped_names() -> list[str]:
    root = shipped_folder()
    files = {path.relative_to(root).with_suffix("") for path in root.rglob(f"*{SUFFIX}")}
    folders = {path.parent for path in files} - {Path()}
    return sorted(path.as_posix() for path in files | folders)


def sweep_path(word: str | Path) -> Path:
    """Return the sweep file, or the folder of sweep files, that a word of the user means.

    That is the file or folder of that name, else with `.yaml`, else the shipped sweep, also by its
    path in a clone. Another absolute path is left to what reads it. Raises SweepError, with the
    nearest name, for any other word.
    """
    path = Path(word)
    if path.exists() or path.is_absolute() or not path.name:
        return path
    if (file := path.with_name(f"{path.name}{SUFFIX}")).exists():
        return file
    name = path.as_posix().removeprefix("sweeps/").removesuffix(SUFFIX)
    shipped, root = shipped_names(), shipped_folder()
    if name in shipped:
        file = root / f"{name}{SUFFIX}"
        return file if file.exists() else root / name
    files = sorted(file.name for file in path.parent.glob("*.y*ml"))
    nearest = nearest_name(path.name, files) or nearest_name(name, shipped)
    if nearest is None:  # the folder may be left out: fope-table2 → mini/fope-table2
        by_end = {full.rpartition("/")[2]: full for full in reversed(shipped)}
        nearest = by_end.get(nearest_name(name, by_end) or "")
    fault = "is not there, and no sweep of this name comes with fope-lab"
    allowed = None if path.suffix else first_names(shipped)
    raise SweepError(Problem((), fault, nearest=nearest, allowed=allowed, file=path))


def paper_names() -> list[str]:
    """The names of all published tables and figures, such as fope/table2."""
    files = sorted(PAPERS.rglob("*.yaml"))
    return [file.relative_to(PAPERS).with_suffix("").as_posix() for file in files]


def paper_path(name: str) -> Path:
    """The file of the table or figure with this name."""
    return PAPERS / f"{name}.yaml"
