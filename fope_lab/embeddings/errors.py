"""What is wrong with an embedding's description: every problem, each with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class EmbeddingProblem:
    """One problem: the field's dotted path, what was found there, what is allowed."""

    path: str
    found: str
    allowed: str | None = None
    nearest: str | None = None

    def __str__(self) -> str:
        text = f"{self.path}: {self.found}"
        if self.nearest is not None:
            text += f"; did you mean {self.nearest!r}?"
        if self.allowed is not None:
            text += f" (allowed: {self.allowed})"
        return text


class EmbeddingError(ValueError):
    """An embedding that cannot be built; `problems` holds all that is wrong with it."""

    def __init__(self, problems: Iterable[EmbeddingProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def misspelt(path: str, what: str, found: object, names: Iterable[str]) -> EmbeddingProblem:
    """The problem of a name that is none of `names`."""
    known = sorted(names)
    close = difflib.get_close_matches(str(found).lower(), known, n=1)
    return EmbeddingProblem(
        path=path,
        found=f"unknown {what} {found!r}",
        allowed=", ".join(known) or "none",
        nearest=close[0] if close else None,
    )
