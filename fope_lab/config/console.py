"""What commands print on, and how they print lines and JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 200
"""Columns outside a terminal, for text and tables that people read."""
WHOLE_ROWS = 100_000
"""Columns outside a terminal, for tables that are searched by line: no row is longer."""


def make_console(*, stderr: bool = False, elsewhere: int = WIDTH) -> Console:
    """A console on standard output, or on standard error.

    It is as wide as the environment's COLUMNS says, else as its terminal, and `elsewhere` columns
    where there is none. Once nothing reads standard output, it is silent, and the work goes on.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # Rich's own would end the process with exit code 1
            self.quiet = True
            if not self.stderr:
                mute_stdout()

    columns = os.environ.get("COLUMNS", "")
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else elsewhere
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    return Output(width=width, soft_wrap=False, stderr=stderr)


def say(console: Console, *lines: str, style: str | None = None) -> None:
    """Print lines as they are, however long."""
    for line in lines:
        console.print(line, style=style, soft_wrap=True, highlight=False, markup=False)


def mute_stdout() -> None:
    """Let what is printed lead nowhere, for a reader of our output, such as `head`, that has closed
    it: else Python ends with an error when it flushes what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
