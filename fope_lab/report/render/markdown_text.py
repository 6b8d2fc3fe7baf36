"""Text and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def escaped(text: str, marks: str = "\\`|<*[") -> str:
    """Text that Markdown shows as it is, on one line; `marks` are what means more than itself."""
    found = " ".join(text.split())
    return "".join(f"\\{mark}" if mark in marks else mark for mark in found)


def grid(header: Sequence[str], body: Iterable[Sequence[str]], left: int) -> str:
    """Rows of escaped text, of which the first `left` columns are words, the others numbers."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *body))
