"""Makes the folder that the site is built from: pages, with their inserts filled in.

A page of docs/pages may have lines of the form `<!-- insert: NAME -->` or
`<!-- insert: NAME ARGUMENT -->`. Each is replaced by what the part NAME generates. So no table,
option, number or output is typed by hand.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

Part = Callable[[str], str]
"""Returns Markdown for an insert, given the words after its name."""
INSERT = re.compile(r"^<!-- insert: ([a-z-]+)(?: (.+?))? -->$", flags=re.MULTILINE)


class UnknownPartError(Exception):
    """A page asks for a part that nothing generates."""


def fill(text: str, parts: Mapping[str, Part], page: str) -> str:
    """The text of a page with every insert replaced. Raises UnknownPartError."""

    def generated(insert: re.Match[str]) -> str:
        name, argument = insert[1], insert[2] or ""
        if name not in parts:
            raise UnknownPartError(f"{page}: no part {name!r} (allowed: {', '.join(parts)})")
        return parts[name](argument).strip()

    return INSERT.sub(generated, text)


def assemble(sources: Path, target: Path, parts: Mapping[str, Part]) -> None:
    """Write the pages and assets of `sources` into `target`, with their inserts filled in."""
    for source in sorted(sources.rglob("*")):
        if source.is_dir():
            continue
        place = target / source.relative_to(sources)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = source.read_text(encoding="utf-8")
            place.write_text(fill(text, parts, str(source.relative_to(sources))), encoding="utf-8")
        else:
            shutil.copyfile(source, place)
