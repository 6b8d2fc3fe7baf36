"""What commands print on, and how they print lines and JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 200
"""Columns outside a terminal, for text and tables that people read."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WHOLE_ROWS = 100_000
"""Columns outside a terminal, for tables that are searched by line: no row is longer."""


def make_console(*, stderr: bool = False, elsewhere: int = WIDTH) -> Console:
    """A console on standard output, or on standard error.

    It is as wide as the environment's COLUMNS says, else as its terminal, and `elsewhere` columns
    where there is none. Once nothing reads standard output, it is silent, and the work goes on.
    """
    columns = os.environ.get("COLUMNS", "")
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else elsewhere
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    return plain_console(width=width, soft_wrap=False, stderr=stderr)


def plain_console(**settings: Any) -> Console:
    """A console of Rich with these settings that shows control characters and does not send them:
    what it prints may come from someone else's store."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Output(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else plain(text), style, control)

        def on_broken_pipe(self) -> None:  # Rich's own would end the process with exit code 1
            self.quiet = True
            if not self.stderr:
                mute_stdout()

    return Output(**settings)


def plain(text: str) -> str:
    """Text with its control characters shown, such as \\x1b, but for line breaks and tabs. So are
    those that turn the direction of writing."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


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
