"""What the word CHECKPOINT of a command means: a path, a model of the hub, or a stage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


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
        fault = f"there is no folder {word} here, and no store at {place.root}"
        raise SweepError(Problem(("CHECKPOINT",), fault))
    try:
        return str(find_known_stage(place, word).folder.path)
    except SweepError as error:
        if "/" in word:
            return word  # as above
        told = f"there is no folder {word} here, and in the store {place.root}: "
        problems = [Problem(("CHECKPOINT",), f"{told}{each.message}") for each in error.problems]
        raise SweepError(problems) from None
