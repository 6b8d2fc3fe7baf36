"""Reads the files of a benchmark's tasks from the Hugging Face hub or from a local folder.

A task is one file with a JSON object on each line. `datasets` reads it line by line from either
place. It can't load these benchmarks by name: both are published with a loading script, which
`datasets` no longer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.data.corpora.hub import HubOrFolder
from fope_lab.data.corpora.local import file_sha256
from fope_lab.data.problems import CorpusError, DataError


@dataclass(frozen=True)
class TaskFiles(HubOrFolder):
    """The files of a benchmark.

    A local folder has each file in one of its subfolders `places`; on the hub, `on_hub` is the
    template of a file's address in the form that `datasets` accepts.
    """

    dataset: str
    revision: str | None
    on_hub: str
    places: tuple[str, ...]

    def local_file(self, name: str) -> Path:
        """Return the file of that name in the folder. Raises DataError if none or several exist."""
        tried = [Path(self.dataset, place, name) for place in self.places]
        existing = [path for path in tried if path.is_file()]
        if len(existing) == 1:
            return existing[0]
        message = (
            f"found neither {' nor '.join(map(str, tried))}"
            if not existing
            else f"found both {' and '.join(map(str, existing))}"
        )
        raise DataError(Problem(("dataset",), message))

    def identity(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each local file; nothing for files on the hub, which the dataset's
        name and revision identify.

        Raises DataError if a file does not exist or can't be read.
        """
        if not self.is_local:
            return {}
        return {name: file_sha256(self.local_file(name)) for name in names}

    def rows(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the objects of a file in order, each after its place for errors: file and line.

        Raises DataError if the file can't be read.
        """
        import datasets

        place = (
            str(self.local_file(name))
            if self.is_local
            else self.on_hub.format(dataset=self.dataset, revision=self.revision, name=name)
        )
        try:
            lines = datasets.load_dataset("json", data_files=place, split="train", streaming=True)
            for line, row in enumerate(lines, 1):
                yield f"{self.dataset}, {name}, line {line}", row
        except (OSError, ValueError, RuntimeError) as error:
            raise CorpusError(
                f"{place} can't be read: {error}. Without the hub, give a local folder in the same "
                "format."
            ) from error


def text_of(row: Mapping[str, Any], field: str, where: str) -> str:
    """Return a field of a row that must be text; `where` names the row in the DataError if not."""
    return _checked(row, field, where, "text", lambda value: isinstance(value, str))


def texts_of(row: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    """Return a field of a row that must be a non-empty list of texts. Raises DataError if not."""

    def fits(value: Any) -> bool:
        return bool(value) and isinstance(value, list) and all(isinstance(v, str) for v in value)

    return tuple(_checked(row, field, where, "a list of texts", fits))


def whole_number_of(row: Mapping[str, Any], field: str, where: str) -> int:
    """Return a field of a row that must be a whole number. Raises DataError if not."""
    return _checked(row, field, where, "a whole number", lambda value: type(value) is int)


def _checked(
    row: Mapping[str, Any], field: str, where: str, needs: str, fits: Callable[[Any], bool]
) -> Any:
    if field not in row:
        raise DataError(f"{where} has no field {field} (it has: {', '.join(sorted(row))})")
    if not fits(row[field]):
        raise DataError(f"{where}: {field} is {str(row[field])[:80]!r}, needs {needs}")
    return row[field]
