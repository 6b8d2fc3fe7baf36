"""Where the files of a benchmark's tasks are: on the Hugging Face hub, or in a local folder.

A task is one file with a JSON object on each line. `datasets` reads it line by line from either
place. It can't load such benchmarks by their names: both are published with a loading script, which
`datasets` no longer runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fope_lab.config.problems import Problem
from fope_lab.data.corpora.hub import LOCAL
from fope_lab.data.corpora.local import file_sha256
from fope_lab.data.problems import CorpusError, DataError


@dataclass(frozen=True)
class TaskFiles:
    """The files of a benchmark.

    `dataset` is a name on the hub, which needs a `revision` (the commit's hash), or a folder whose
    path starts with / ./ ../ or ~. A folder has each file in one of the `places` below it; on the
    hub, `on_hub` is a file's address as `datasets` takes it.
    """

    dataset: str
    revision: str | None
    on_hub: str
    places: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether `dataset` is a folder and no name on the hub."""
        return self.dataset.startswith(LOCAL)

    def resolved(self, base: Path) -> Self:
        """Itself with an absolute folder; a relative one starts from `base`, or if it is not there,
        from the current directory. Raises DataError."""
        if not self.is_local:
            if self.revision is None:
                message = (
                    f"is missing: pin {self.dataset} to a commit, shown at "
                    f"https://huggingface.co/datasets/{self.dataset}/commits/main"
                )
                raise DataError(Problem(("revision",), message))
            return self
        if self.revision is not None:
            message = f"{self.dataset} is a local folder, which has no revision"
            raise DataError(Problem(("revision",), message))
        given = os.path.expanduser(self.dataset)
        tried = [os.path.abspath(place / given) for place in (base, Path.cwd())]
        for folder in tried:
            if os.path.isdir(folder):
                return replace(self, dataset=folder)
        message = f"no folder {' nor '.join(dict.fromkeys(tried))}"
        raise DataError(Problem(("dataset",), message))

    def local_file(self, name: str) -> Path:
        """The one file of that name in the folder. Raises DataError."""
        tried = [Path(self.dataset, place, name) for place in self.places]
        found = [path for path in tried if path.is_file()]
        if len(found) == 1:
            return found[0]
        message = (
            f"found neither {' nor '.join(map(str, tried))}"
            if not found
            else f"found both {' and '.join(map(str, found))}"
        )
        raise DataError(Problem(("dataset",), message))

    def identity(self, names: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of each of the files that are local; nothing for the hub's, which the name
        and the revision stand for. Raises DataError."""
        if not self.is_local:
            return {}
        return {name: file_sha256(self.local_file(name)) for name in names}

    def rows(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The objects of a file, in their order. Raises DataError."""
        import datasets

        place = (
            str(self.local_file(name))
            if self.is_local
            else self.on_hub.format(dataset=self.dataset, revision=self.revision, name=name)
        )
        try:
            yield from datasets.load_dataset(
                "json", data_files=place, split="train", streaming=True
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise CorpusError(
                f"{place} can't be read: {error}. Without the hub, give a local folder in its "
                "format."
            ) from error


def text_of(row: Mapping[str, Any], field: str, where: str) -> str:
    """A field of a row that must be text. Raises DataError."""
    value = _value(row, field, where)
    if not isinstance(value, str):
        raise DataError(f"{where}: {field} is {str(value)[:80]!r}, needs text")
    return value


def texts_of(row: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    """A field of a row that must be a list of texts, at least one. Raises DataError."""
    value = _value(row, field, where)
    if not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
        raise DataError(f"{where}: {field} is {str(value)[:80]!r}, needs a list of texts")
    return tuple(value)


def whole_number_of(row: Mapping[str, Any], field: str, where: str) -> int:
    """A field of a row that must be a whole number. Raises DataError."""
    value = _value(row, field, where)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{where}: {field} is {str(value)[:80]!r}, needs a whole number")
    return value


def _value(row: Mapping[str, Any], field: str, where: str) -> Any:
    if field not in row:
        raise DataError(f"{where} has no field {field} (it has: {', '.join(sorted(row))})")
    return row[field]
