"""The source code that attempts ran through: one file for each different state of the code.

An attempt's record has the name of such a file, `source/NAME.json` in the store.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fope_lab.atomic_files import read_json, write_atomic
from fope_lab.provenance.source import DIGITS, SourceFile


class Sources:
    """The states of the code that the store `root` knows."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "source"

    def keep(self, files: Mapping[str, SourceFile]) -> str:
        """Write down files by path unless they are known; returns their name."""
        content = {path: dataclasses.asdict(file) for path, file in sorted(files.items())}
        text = json.dumps(content, indent=1)
        name = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
        path = self._folder / f"{name}.json"
        if not path.exists():
            write_atomic(path, text)
        return name

    def read(self, name: str) -> dict[str, SourceFile] | None:
        """The files of that name by path, or None if they are missing or can't be read."""
        content = read_json(self._folder / f"{name}.json")
        if not isinstance(content, dict):
            return None
        try:
            return {path: SourceFile(**file) for path, file in content.items()}
        except TypeError:
            return None
