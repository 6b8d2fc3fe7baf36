"""What commands print on, and how they print JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def make_console(*, stderr: bool = False) -> Console:
    """A console on standard output, or on standard error; 200 columns wide without a terminal."""
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(width=width, soft_wrap=False, stderr=stderr)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
