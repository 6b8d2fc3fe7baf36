"""What corpora of local files held when a stage read them, so that the files may go afterwards.

`corpora/NAME.json` in the store has one corpus as one sweep file names it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import write_json
from fope_lab.store.records import read_corpus

DIGITS = 20
"""The length of a record's name, in hexadecimal digits."""


@dataclass(frozen=True)
class CorpusRecord:
    """A corpus of local files, and what it held at `time`, in seconds since the epoch.

    `corpus` is what the file of the sweep named `sweep` says, and relative paths in it start from
    `folder`. `files` has the SHA-256 of each file by its path, which starts from `folder` too
    unless the sweep names absolute paths. `identity` is what keys have for the corpus.
    """

    corpus: Mapping[str, Any]
    folder: str
    sweep: str
    files: Mapping[str, str]
    identity: Mapping[str, Any]
    time: float


class CorpusRecords:
    """The corpora of local files that the store `root` knows."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "corpora"

    def keep(self, record: CorpusRecord) -> None:
        """Write down a corpus, in place of what the same file named the same way before."""
        named = json.dumps([record.corpus, record.folder, record.sweep], sort_keys=True)
        name = hashlib.sha256(named.encode()).hexdigest()[:DIGITS]
        write_json(self._folder / f"{name}.json", dataclasses.asdict(record))

    def all(self) -> list[CorpusRecord]:
        """Every record that can be read, the newest first."""
        contents = filter(None, map(read_corpus, sorted(self._folder.glob("*.json"))))
        names = [field.name for field in dataclasses.fields(CorpusRecord)]
        records = [CorpusRecord(**{name: of[name] for name in names}) for of in contents]
        return sorted(records, key=lambda record: record.time, reverse=True)
