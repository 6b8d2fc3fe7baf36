"""What the corpora of local files hold: today, or when a run of the store read them.

When files are gone and the rest is as it was, the content that the store recorded takes their
place, so that all stages keep their keys. Files that have changed are read as they are today.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.problems import ConfigError
from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.files import file_sha256
from fope_lab.data.corpora.registry import CORPORA
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import ROWS, WEIGHT
from fope_lab.store.root import CorpusRecord, Store

AROUND = ROWS.options.keys() | WEIGHT.options.keys()
"""What may stand beside a corpus's own options in `data`."""


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus as the store recorded it, with the absolute paths of its files."""

    record: CorpusRecord
    files: Mapping[str, str]

    @functools.cached_property
    def missing(self) -> tuple[str, ...]:
        return tuple(path for path in self.files if not os.path.exists(path))


@dataclass(frozen=True)
class LocalCorpus:
    """A corpus of local files: what the store will know of it, and itself with absolute paths."""

    record: CorpusRecord
    corpus: Mapping[str, Any]


class LocalCorpora:
    """The corpora of local files of one sweep, and of the files that it refers to."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._described: dict[tuple[str, Path, str], Mapping[str, Any]] = {}
        self._replaced: dict[str, KnownCorpus] = {}
        self._read: dict[tuple[str, Path, str], LocalCorpus] = {}

    @property
    def read(self) -> tuple[LocalCorpus, ...]:
        """Every corpus that is there, with its content."""
        return tuple(self._read.values())

    @property
    def replaced(self) -> tuple[KnownCorpus, ...]:
        """Every corpus whose files are gone, and that is known from the store."""
        return tuple(self._replaced.values())

    def located(self, section: Mapping[str, Any], folder: Path, sweep: str) -> dict[str, Any]:
        """The section, in which corpora whose files are gone name the files that were recorded."""

        def walk(value: Any) -> Any:
            if isinstance(value, Mapping):
                return self._locate({k: walk(v) for k, v in value.items()}, folder, sweep)
            return [walk(each) for each in value] if isinstance(value, list) else value

        return {name: walk(value) for name, value in section.items()}

    def identity(self, corpus: Corpus) -> Mapping[str, Any]:
        """Return the identity of a corpus: as recorded if files are gone. Raises DataError."""
        known = self._replaced.get(_text(corpus.canonical()))
        return known.record.identity if known else corpus.identity()

    def missing(self, corpus: Corpus) -> tuple[str, ...]:
        known = self._replaced.get(_text(corpus.canonical()))
        return known.missing if known else ()

    def _locate(self, given: Mapping[str, Any], folder: Path, sweep: str) -> Mapping[str, Any]:
        """Return a corpus's description, as recorded if files are gone; any other as it is."""
        if given.get("type") not in CORPORA.all_names() and not given.keys() & CORPORA.shorthands:
            return given
        key = (_text(given), folder, sweep)
        if key not in self._described:
            self._described[key] = {**given, **self._look(given, folder, sweep)}
        return self._described[key]

    def _look(self, given: Mapping[str, Any], folder: Path, sweep: str) -> dict[str, Any]:
        """The options that name recorded files, if they are gone; fills `_read`, `_replaced`."""
        try:
            named = CORPORA.parse({k: v for k, v in given.items() if k not in AROUND})
        except ConfigError:
            return {}  # the section's own check reports it
        if not named.places():
            return {}
        resolved, found, identity = None, dict[str, str](), dict[str, Any]()
        try:
            resolved = named.resolved(folder)
            found = {path: file_sha256(Path(path)) for path in resolved.local_files()}
            identity = resolved.identity()
        except DataError:
            resolved = None
        known = next(self._known(named, folder, sweep), None)
        if known and known.missing and found.keys() <= known.files.keys():
            there = known.files.keys() - set(known.missing)
            if all(known.files[path] == file_sha256(Path(path)) for path in there):
                placed = named.placed(folder, sorted(known.files))
                self._replaced[_text(dataclasses.replace(named, **placed).canonical())] = known
                return placed
        if resolved is not None:
            if not any(os.path.isabs(os.path.expanduser(place)) for place in named.places()):
                found = {os.path.relpath(path, folder): sha256 for path, sha256 in found.items()}
            said, now = named.canonical(), time.time()
            record = CorpusRecord(said, str(folder), sweep, found, identity, now)
            self._read[(_text(said), folder, sweep)] = LocalCorpus(record, resolved.canonical())
        return {}

    def _known(self, named: Corpus, folder: Path, sweep: str) -> Iterator[KnownCorpus]:
        """Of this place, the newest first; then under the name of a sweep that has moved."""
        places = _places(named, folder)
        for record in self._records:
            with contextlib.suppress(ConfigError):
                if _places(CORPORA.parse(record.corpus), Path(record.folder)) == places:
                    yield _as_known(record, Path(record.folder))
        for record in self._records:
            same = record.sweep == sweep and record.corpus == named.canonical()
            if same and not os.path.exists(record.folder):
                yield _as_known(record, folder)

    @functools.cached_property
    def _records(self) -> list[CorpusRecord]:
        return self._store.corpora() if self._store else []


def missing_note(replaced: Iterable[KnownCorpus]) -> str | None:
    """Return a line on the files that are gone and what stands in their place; None if none."""
    known = list(replaced)
    if not known:
        return None
    newest = max(one.record.time for one in known)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(newest))
    files = [path for one in known for path in one.missing]
    return (
        f"{gone(files)}: the stages have the keys of the content that the store recorded on {day};"
        " to use only the remaining files, list them"
    )


def gone(files: Iterable[str]) -> str:
    """Say which files are gone, in a few words."""
    first, *others = dict.fromkeys(files)
    more = f" and {len(others)} more" if others else ""
    return f"{first}{more} {'are' if others else 'is'} gone"


def _as_known(record: CorpusRecord, folder: Path) -> KnownCorpus:
    files = {os.path.abspath(folder / path): sha256 for path, sha256 in record.files.items()}
    return KnownCorpus(record, files)


def _places(corpus: Corpus, folder: Path) -> str:
    """Return a corpus as text: its options with the absolute places that it names."""
    paths = [os.path.abspath(folder / os.path.expanduser(place)) for place in corpus.places()]
    return _text(dataclasses.replace(corpus, **corpus.placed(folder, paths)).canonical())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
