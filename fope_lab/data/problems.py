"""What is wrong with a description of data: every problem, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class DataProblem:
    """One problem: `at` is the field's path inside the description."""

    at: FieldPath
    message: str


class DataError(ValueError):
    """Data that can't be described, read or used; `problems` holds all that is wrong.

    `path` names the described field in the text of the error.
    """

    def __init__(self, problems: Iterable[DataProblem] | str, path: str = "") -> None:
        found = [DataProblem((), problems)] if isinstance(problems, str) else problems
        self.problems = tuple(dict.fromkeys(found))
        self.path = path
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: DataProblem) -> str:
        where = self.path
        for part in problem.at:
            where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
        return f"{where}: {problem.message}" if where else problem.message


class CorpusError(DataError):
    """A corpus that can't be described or read."""


def unknown(what: str, found: object, names: Iterable[str]) -> str:
    """The message for a name that is none of `names`, with the nearest one."""
    known = sorted(names)
    close = difflib.get_close_matches(str(found).lower(), known, n=1)
    near = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {found!r}{near} (allowed: {', '.join(known) or 'none'})"
