"""What is wrong with a configuration: each problem with its place, what was found and the way out.

An exported model contains a copy of this module, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_PRINTED = 100
"""How many problems, and how many names in one of them, an error prints at most."""
FieldPath = tuple[str | int, ...]
"""The keys and indices that lead to a value, from the outside in."""


class UserError(Exception):
    """Something about the request is wrong, so the text tells the user what to change.

    The command line prints the text without a traceback and exits with code 2. A subclass that is
    also a ValueError is raised where options are built, and there any ValueError is collected.
    """


class NameTakenError(ValueError):
    """Two classes have one name in sweep files."""


@dataclass(frozen=True)
class Problem:
    """One problem of the value at `path`; converting it to text gives the whole sentence.

    `fault` says what is wrong, such as "found -1", and `needs` what belongs there instead.
    `allowed` are the names that may stand there (of many, the first), and `nearest` the one most
    like the name found. `is_missing`: no value was given. `file` and `line` are set once
    the place in a file is known.
    """

    path: FieldPath
    fault: str
    needs: str | None = None
    nearest: str | None = None
    allowed: tuple[str, ...] | None = None
    is_missing: bool = False
    file: Path | None = None
    line: int | None = None

    @property
    def field(self) -> str:
        return format_path(self.path)

    @property
    def message(self) -> str:
        """The sentence without the place."""
        needs = "" if self.needs is None else f", needs {self.needs}"
        near = "" if self.nearest is None else f"; did you mean {self.nearest!r}?"
        names = "" if self.allowed is None else f" (allowed: {', '.join(self.allowed) or 'none'})"
        return f"{self.fault}{needs}{near}{names}"

    def under(self, path: FieldPath) -> Problem:
        """The same problem in a configuration that has this one at `path`."""
        return dataclasses.replace(self, path=(*path, *self.path))

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        file = f"{self.file}{line}" if self.file else ""
        return ": ".join(part for part in (file, self.field, self.message) if part)


class ConfigError(UserError, ValueError):
    """A configuration that cannot be used; `problems` holds everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem] | Problem | str, at: FieldPath = ()) -> None:
        """A text is a problem of the whole configuration. `at` is put before every path."""
        if isinstance(problems, str):
            problems = Problem((), problems)
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems = tuple(dict.fromkeys(problem.under(at) for problem in problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


@contextlib.contextmanager
def collecting(problems: list[Problem], at: FieldPath = ()) -> Iterator[None]:
    """Add the problems of a ConfigError to a list, under the path `at`, and go on."""
    try:
        yield
    except ConfigError as error:
        problems += (problem.under(at) for problem in error.problems)


class SweepError(UserError):
    """A sweep file is wrong; `problems` holds every problem found, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem] | Problem) -> None:
        unique = dict.fromkeys([problems] if isinstance(problems, Problem) else problems)
        self.problems = sorted(unique, key=lambda p: (str(p.file or ""), p.line or 0))
        more = len(self.problems) - MAX_PRINTED
        rest = [f"and {more:,} more problems"] if more > 0 else []
        super().__init__("\n".join([*map(str, self.problems[:MAX_PRINTED]), *rest]))


def format_path(path: FieldPath) -> str:
    """('grid', 'pretrain.embedding', 2) → 'grid.pretrain.embedding[2]'."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def nearest_name(found: object, names: Iterable[str]) -> str | None:
    """The most similar name, if one is close; of very many, only the first are looked at."""
    known = list(itertools.islice(names, MAX_PRINTED))
    by_lower = {name.lower()[:MAX_PRINTED]: name for name in reversed(known)}
    word = str(found).lower()[:MAX_PRINTED]
    near = difflib.get_close_matches(word, by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def did_you_mean(found: object, names: Iterable[str]) -> str:
    """ "; did you mean 'rope'?" for a near miss, otherwise the empty string."""
    nearest = nearest_name(found, names)
    return "" if nearest is None else f"; did you mean {nearest!r}?"


def unknown_name(
    path: FieldPath, what: str, name: object, names: Iterable[str], of: str = ""
) -> Problem:
    """The problem of a name that is not among `names`: "unknown option 'bas' of rope"."""
    allowed = tuple(names)
    fault = f"unknown {what} {shown(name)}" + (f" of {of}" if of else "")
    nearest = nearest_name(name, allowed)
    return Problem(path, fault, nearest=nearest, allowed=first_names(allowed))


def missing(path: FieldPath, why: str = "", allowed: Iterable[str] | None = None) -> Problem:
    """The problem of a value that is needed and not given; `why` says by what."""
    names = None if allowed is None else tuple(allowed)
    fault = f"is missing: {why}" if why else "is missing"
    return Problem(path, fault, allowed=names, is_missing=True)


def name_list(names: Iterable[object]) -> str:
    """The names as an error prints them, separated by commas."""
    return ", ".join(first_names(names)) or "none"


def first_names(names: Iterable[object]) -> tuple[str, ...]:
    """The names as text; of many, the first hundred and a word on the others."""
    known = tuple(names)
    more = len(known) - MAX_PRINTED
    return (*map(str, known[:MAX_PRINTED]), *([f"… ({more:,} more)"] if more > 0 else []))


def shown(value: Any) -> str:
    """A value of a configuration as an error prints it: the way YAML writes it, cut if long."""
    words = {None: "nothing", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def in_few_words(options: Mapping[str, Any]) -> str:
    """Options in one line; of a long list, such as the files of a corpus, only the first value."""

    def short(value: Any) -> Any:
        is_long = isinstance(value, list) and len(value) > 2
        return f"{value[0]} and {len(value) - 1} more" if is_long else value

    return ", ".join(f"{name} {short(value)}" for name, value in options.items())


def counted(number: int, noun: str = "stage") -> str:
    """A number of things: "1 stage", "1,200 stages"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
