"""Sections of CONTRIBUTING.md, whose worked examples are tested where they stand."""

from __future__ import annotations

import re

from docs.generate.shipped import ROOT


def section(title: str) -> str:
    """The text of a section, without its heading. Raises ValueError if there is none."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"CONTRIBUTING.md has no section {title!r}")
    return found[1]
