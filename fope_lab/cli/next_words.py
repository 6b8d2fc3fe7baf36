"""The words that can end a command line, for the shells' completion; it must be quick.

Stages are those of the sweeps that the store has recorded. Their names are read from the records
directly: to import what else reads them takes longer than a press of TAB should.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fope_lab.config.environment import default_store

KEY_DIGITS = 8
"""The digits of a key that are offered, as tables show them."""


def next_words(line: str, replaced: str | None = None) -> list[str]:
    """The words with which the last word of `line` can be completed, in order.

    A shell that splits words at = and : replaces only the end of the last word, `replaced`; the
    words are then without what comes before it.
    """
    *before, last = _split(line)
    found = [word for word in dict.fromkeys(_candidates(before[1:], last)) if word.startswith(last)]
    kept = 0 if replaced is None or not last.endswith(replaced) else len(last) - len(replaced)
    return [word[kept:] for word in found]


def _split(line: str) -> list[str]:
    """The words of the line; the last one is empty after a space."""
    for closing in ("", "'", '"'):  # the last word may be in quotes that are still open
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not line or (line[-1].isspace() and not closing) else words
    return [*line.split(), ""]


def _candidates(words: Sequence[str], last: str) -> Iterable[str]:
    from fope_lab.cli import app

    group: app.Group | None = app.COMMAND_GROUP
    while group is not None:
        if not words:
            return [*group.names, "--help"]
        if words[0] not in group.names:
            return []
        command, words, inner = group.module(words[0]), words[1:], group.inner(words[0])
        group = inner
    parser = argparse.ArgumentParser()
    for add in command.ARGUMENTS:
        add(parser)
    return _arguments(parser, words, last)


def _arguments(parser: argparse.ArgumentParser, words: Sequence[str], last: str) -> Iterable[str]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    if last.startswith("-"):
        return [name for name in options if name.startswith("--")]
    before = options.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        return _values(before, words, last)
    positional = [action for action in parser._actions if not action.option_strings]
    return [word for action in positional for word in _values(action, words, last)]


def _values(action: argparse.Action, words: Sequence[str], last: str) -> Iterable[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.metavar in ("STAGE", "CHECKPOINT"):
        return [*_stages(_store(words)), *(_paths(last) if action.metavar != "STAGE" else ())]
    if action.metavar == "FILE":
        return (*(path for path in _paths(last) if path.endswith((".yaml", "/"))), *_shipped(last))
    return _paths(last) if action.metavar in ("DIR", "GLOB", "NAME.yaml") else []


def _shipped(last: str) -> list[str]:
    """The names of the sweeps that come with fope-lab, once a letter tells that one is meant."""
    from fope_lab.config.shipped import shipped_names

    return shipped_names() if last else []


def _store(words: Sequence[str]) -> Path:
    named = [after for word, after in itertools.pairwise(words) if word == "--store"]
    named += [word.removeprefix("--store=") for word in words if word.startswith("--store=")]
    return Path(named[-1] if named else default_store()).expanduser()


def _stages(store: Path) -> Iterator[str]:
    """The sections, the labels and the keys of the stages of all recorded sweeps."""
    stages = []
    for path in sorted((store / "tracking" / "sweeps").glob("*/plan.json")):
        try:
            stages += json.loads(path.read_text(encoding="utf-8"))["stages"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    for field in ("stage", "name", "key"):
        for stage in stages:
            text = stage.get(field) if isinstance(stage, dict) else None
            if isinstance(text, str) and text:
                yield text[:KEY_DIGITS] if field == "key" else text


def _paths(last: str) -> Iterator[str]:
    """The files and folders whose paths begin like this; hidden ones if that is asked for.

    The path of a folder ends in a slash, after which a shell goes on with the same word.
    """
    folder, _, start = last.rpartition("/")
    place = Path(f"{folder}/" if "/" in last else ".").expanduser()
    try:
        names = sorted(f"{path.name}{'/' * path.is_dir()}" for path in place.iterdir())
    except OSError:
        return
    for name in names:
        if name.startswith(start) and (start or not name.startswith(".")):
            yield f"{folder}/{name}" if "/" in last else name
