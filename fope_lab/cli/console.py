"""The console that commands print on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """A console on standard output, or on standard error; 200 columns wide without a terminal."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(width=width, soft_wrap=False, stderr=stderr)
