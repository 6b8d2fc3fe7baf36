"""The reference of sweep files: what a table points to is on the page."""

from __future__ import annotations

import re

from docs.generate.sweep_files import kinds, sections, top_level


def test_every_section_that_is_linked_is_there() -> None:
    page = "\n".join(part("") for part in (top_level, kinds, sections))
    linked = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert {"embedding", "query_scale", "transform"} <= linked
    assert linked <= set(re.findall(r"^### (.+)$", page, flags=re.MULTILINE))
