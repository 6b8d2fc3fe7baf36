"""Errors by their text, from docs/troubleshooting.yaml, each of which the code must have."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import yaml

from docs.generate.markdown import plain
from docs.generate.shipped import ROOT

FILE = ROOT / "docs" / "troubleshooting.yaml"
VALUE = "…"  # stands for what a message fills in


class NoSuchErrorTextError(Exception):
    """A text of docs/troubleshooting.yaml is nowhere in the code."""


def page(_: str) -> str:
    """A section for each error: its text, what it means and what to do."""
    entries: list[dict[str, str]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    missing = [entry["text"] for entry in entries if not is_in_code(entry["text"])]
    if missing:
        raise NoSuchErrorTextError(f"no code of fope_lab or trainers says {missing}")
    return "\n\n".join(
        f"## `{entry['text']}`\n\n{plain(entry['means'])}\n\n**What to do.** {plain(entry['do'])}"
        for entry in entries
    )


def is_in_code(text: str) -> bool:
    """Whether a string of the code has the text."""
    return any(text in string for string in _strings())


@functools.cache
def _strings() -> frozenset[str]:
    """Every string of the code, with VALUE where it fills something in."""
    files = [path for room in ("fope_lab", "trainers") for path in (ROOT / room).rglob("*.py")]
    return frozenset(string for path in files for string in _strings_of(path))


def _strings_of(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return [text for node in nodes if (text := _text(node)) is not None]


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or VALUE for part in node.values)
    return None
