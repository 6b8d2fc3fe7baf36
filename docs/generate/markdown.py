"""Small pieces of Markdown: tables, cells and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a header; cells are Markdown, of which `cell` makes a single line."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """The text as the content of a table's cell: one line, in which a bar separates nothing."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def plain(text: str) -> str:
    """Text in which no character means Markdown or HTML; what stands in backticks stays code."""
    code = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escape(part) for part in code)


def _escape(text: str) -> str:
    r"""Markdown has no `\<`, so that HTML's way is the only one for it."""
    return re.sub(r"([\\*_\[\]>|$])", r"\\\1", text).replace("<", "&lt;")


def block(text: str, language: str = "text") -> str:
    """A block of code or output."""
    return f"```{language}\n{text.rstrip()}\n```"


def anchor(heading: str) -> str:
    """The address of a heading within its page."""
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
