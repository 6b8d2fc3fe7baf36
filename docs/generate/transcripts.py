"""What the commands of the tutorial print, from the real run that docs/record_tutorial.py made."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from docs.generate.markdown import block
from docs.generate.shipped import ROOT

PAGE = ROOT / "docs" / "pages" / "tutorial.md"
RECORD = ROOT / "docs" / "tutorial" / "transcript.json"
FIGURE = RECORD.parent / "figure.svg"
STEP = re.compile(r"^<!-- insert: transcript (.+) -->$", flags=re.MULTILINE)


def steps() -> list[str]:
    """The commands of the tutorial, in their order."""
    return STEP.findall(PAGE.read_text(encoding="utf-8"))


@functools.cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Each command of the recorded run with its output and its seconds."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {step["command"]: step for step in record["steps"]}


def of_step(command: str) -> str:
    """A command and what it printed. Raises KeyError for a command that was not recorded."""
    output = recorded()[command]["output"]
    shown = [block(command, "sh")]
    if output.strip():
        shown.append(block(output))
    return "\n\n".join(shown)
