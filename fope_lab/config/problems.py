"""What is wrong with a sweep file: every problem found, each with its place and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One problem: `message` says what was found and what is allowed."""

    file: Path
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return (
            f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"
        )


class SweepError(Exception):
    """A sweep file is wrong; `problems` holds every problem found, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = sorted(unique, key=lambda p: (str(p.file), p.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def format_path(path: FieldPath) -> str:
    """('grid', 'pretrain.embedding', 2) → 'grid.pretrain.embedding[2]'."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def did_you_mean(found: object, allowed: Sequence[str]) -> str:
    """ "; did you mean 'rope'?" for a near miss, otherwise the empty string."""
    by_lower = {name.lower(): name for name in reversed(allowed)}
    near = difflib.get_close_matches(str(found).lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def name_list(names: Iterable[object]) -> str:
    """The allowed names, as they are printed in an error."""
    return ", ".join(str(name) for name in names) or "none"


def shown(value: Any) -> str:
    """A value of a sweep file as an error prints it: as YAML has it, cut if it is long."""
    words = {None: "nothing", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
