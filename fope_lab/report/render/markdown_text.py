"""Text and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def escaped(text: str, marks: str = "\\`|<*[") -> str:
    """Escape text so that Markdown shows it unchanged, on one line.

    `marks` are the characters to escape.
    """
    line = " ".join(text.split())
    return "".join(f"\\{mark}" if mark in marks else mark for mark in line)


def grid(header: Sequence[str], body: Iterable[Sequence[str]], left: int) -> str:
    """Format rows of escaped text as a table.

    The first `left` columns are aligned to the left, the others to the right.
    """
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *body))
