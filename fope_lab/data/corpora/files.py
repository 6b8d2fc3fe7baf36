"""Local files as people have them: text, or a column of JSON, CSV, Parquet or Arrow."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from fope_lab.config.annotations import Doc
from fope_lab.config.problems import Problem
from fope_lab.data.corpora.base import (
    BREAKS,
    EXACT,
    HELD_OUT,
    Corpus,
    Split,
    best_cut,
    sha256_of,
    split_documents,
    split_texts,
)
from fope_lab.data.corpora.forms import (
    Form,
    characters_in,
    form_of,
    once_for_each_content,
    texts_in,
)
from fope_lab.data.problems import DataError

FIRST_ROWS = 100
"""How many rows of each file are read before anything starts."""
SAVED, SAVED_DICT = "state.json", "dataset_dict.json"
"""What a folder of `Dataset.save_to_disk` has, and one of `DatasetDict`."""


class LocalFiles(Corpus):
    """A corpus of local files: its option `shorthand` is a glob, a path, or a list of them, and
    once resolved a tuple of absolute paths. A folder of `Dataset.save_to_disk` stands for its Arrow
    files."""

    shorthand: ClassVar[str]

    def resolved(self, base: Path) -> Self:
        patterns, field = self.places(), self.shorthand
        problems = [] if patterns else [Problem((field,), "found an empty list")]
        found: dict[str, None] = {}
        for index, pattern in enumerate(patterns):
            at = (field,) if isinstance(getattr(self, field), str) else (field, index)
            try:
                matches = _matches(pattern, base) or _matches(pattern, Path.cwd())
            except DataError as error:
                problems.append(Problem(at, str(error)))
                continue
            if os.path.isabs(pattern) and not glob.has_magic(pattern) and not matches:
                matches = [pattern]  # what reads it says whether it is there
            found.update(dict.fromkeys(matches))
            if not matches:
                problems.append(Problem(at, _no_file(pattern, base, Path.cwd())))
        if problems:
            raise DataError(problems)
        by_place = {os.path.realpath(path): path for path in sorted(found, reverse=True)}
        return replace(self, **{field: tuple(sorted(by_place.values()))})

    def places(self) -> tuple[str, ...]:
        given: str | tuple[str, ...] = getattr(self, self.shorthand)
        return (given,) if isinstance(given, str) else given

    def placed(self, base: Path, paths: Sequence[str]) -> dict[str, Any]:
        return {self.shorthand: list(paths)}

    def local_files(self) -> list[str]:
        gone = [path for path in self.places() if not os.path.isfile(path)]
        if gone:
            raise DataError(Problem((self.shorthand,), _no_file(path)) for path in gone)
        return list(self.places())

    @property
    def paths(self) -> list[Path]:
        return [Path(path) for path in self.local_files()]

    def content(self) -> dict[str, Any]:
        """What the files are, in an identity."""
        digests = [bytes.fromhex(file_sha256(path)) for path in self.paths]
        return {"type": self.name, "documents": len(digests), "sha256": sha256_of(digests)}

    def one_form(self) -> Form:
        """The form of all files. Raises DataError if they have several."""
        found: dict[Form, Path] = {}
        for path in self.paths:
            found.setdefault(form_of(path), path)
        if len(found) > 1:
            several = ", ".join(f"{path.name} holds {form}" for form, path in found.items())
            needs = "files of one form: make a corpus of each and mix them"
            raise DataError(Problem((self.shorthand,), several, needs))
        return next(iter(found))


@dataclass(frozen=True, kw_only=True)
class Files(LocalFiles):
    """Local files: a glob, a path, or a list of them. A file of text (UTF-8) is one document; of
    JSON Lines, CSV, Parquet or Arrow, each row is one.

    Text, JSON and CSV may be compressed (gz, zst, bz2, xz), and a folder of `Dataset.save_to_disk`
    is read, too. The held-out part is a tenth: of text the end of each file, of rows every tenth.
    """

    name = "files"
    shorthand = "files"

    files: Annotated[
        str | tuple[str, ...],
        Doc("The files to read, or patterns such as texts/*.txt, all of one form."),
    ]
    form: Annotated[
        Form | None,
        Doc("What the files hold; the default is what their content and their names say."),
    ] = None
    column: Annotated[str, Doc("Of rows: the column of the text.")] = "text"
    cut: Annotated[
        Literal["paragraph", "line", "word", "exact", "documents"] | None,
        Doc(
            "Where the held-out part begins: at the paragraph, line or word that is nearest to nine"
            " tenths of a document, exactly there, or with every tenth of the documents. The"
            " default is documents for rows, and for text paragraph, or else the next that leaves"
            " a part to hold out."
        ),
    ] = None

    def check(self) -> None:
        form = self._form
        if form in ("npy", "bin"):
            message = f"{self.files[0]} holds token ids: write token_ids: in place of files:"
            raise DataError(Problem(("files",), message))
        if form == "text" and self.column != type(self).column:
            message = f"found {self.column!r}, but the files hold text, which has no columns"
            raise DataError(Problem(("column",), message))
        problems, documents = [], 0
        for path in self.paths:
            try:
                if form == "text":
                    documents += characters_in(path) > 0
                else:
                    texts = texts_in(path, form, self.column)
                    documents += sum(1 for _, _ in zip(range(FIRST_ROWS), texts, strict=False))
            except DataError as error:
                problems.append(Problem(("files",), str(error)))
        if not problems and not documents:
            problems.append(Problem(("files",), f"found no text in {', '.join(self.files)}"))
        if not problems and documents < 2 and self.cut == "documents":
            needs = "two documents, of which one is held out"
            problems.append(Problem(("cut",), "found one document", needs))
        if not problems and next(self.documents("train"), None) is None:
            problems.append(Problem(("files",), "found one character, needs some to hold out"))
        if not problems and next(self.documents("validation"), None) is None:
            why = f"found {self.cut}, but no {self.cut} ends in the last fifth of a document"
            problems.append(Problem(("cut",), why))
        if problems:
            raise DataError(problems)

    def held_out(self) -> str:
        cut, kinds = self._cut, [*BREAKS, EXACT]
        if cut == "documents":
            return f"every {HELD_OUT}th document, or of fewer the last"
        place = "after nine tenths of its characters" if cut == EXACT else f"where a {cut} ends"
        fallen = self.cut != cut != kinds[0]
        why = f": no {kinds[kinds.index(cut) - 1]} ends in its last fifth" if fallen else ""
        return f"the end of each document, cut {place}{why}"

    def identity(self) -> dict[str, Any]:
        content = self.content()
        if self._form != "text":
            content |= {"form": self._form, "column": self.column}
        default = "paragraph" if self._form == "text" else "documents"
        return content if self._cut == default else {**content, "cut": self._cut}

    def documents(self, split: Split) -> Iterator[str]:
        if self._cut == "documents":
            return split_documents(self._documents(), split)
        return split_texts(self._documents(), split, self._cut)

    def _documents(self) -> Iterator[str]:
        form = self._form
        return chain.from_iterable(texts_in(path, form, self.column) for path in self.paths)

    @property
    def _form(self) -> Form:
        return self.one_form() if self.form is None else self.form

    @property
    def _cut(self) -> str:
        """Where the held-out part begins: as given, or else what leaves one."""
        if self.cut not in (None, "paragraph"):
            return cast(str, self.cut)
        key = json.dumps([self.canonical(), [file_sha256(path) for path in self.paths]])
        if key not in _CUTS:
            _CUTS[key] = self._default_cut()
        return _CUTS[key]

    def _default_cut(self) -> str:
        documents = self._documents()
        if self.cut is None and self._form != "text":
            first = [text for _, text in zip(range(2), documents, strict=False)]
            return "documents" if len(first) > 1 else best_cut(first)
        return best_cut(documents)


_CUTS: dict[str, str] = {}
"""The cut of each corpus and content that was looked at: plans ask for it often."""


def file_sha256(path: Path) -> str:
    """The hex SHA-256 of a file's content. Raises DataError if it can't be read."""
    return once_for_each_content(_sha256, path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def saved_splits(folder: Path) -> list[str] | None:
    """The splits of a folder of `DatasetDict.save_to_disk`, none for one of `Dataset`; None for any
    other folder. Raises DataError if its description can't be read."""
    try:
        if (folder / SAVED_DICT).is_file():
            return list(json.loads((folder / SAVED_DICT).read_text(encoding="utf-8"))["splits"])
        return [] if (folder / SAVED).is_file() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / SAVED_DICT} can't be read: {error!r}") from error


def _data_files(folder: Path) -> list[str]:
    """The Arrow files of a saved dataset; beside them, there may be some of its cache."""
    try:
        state = json.loads((folder / SAVED).read_text(encoding="utf-8"))
        return [str(file["filename"]) for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / SAVED} can't be read: {error!r}") from error


def _matches(pattern: str, base: Path) -> list[str]:
    """The files that a pattern stands for. Raises DataError for a saved dataset of many splits."""
    absolute = os.path.abspath(base / os.path.expanduser(pattern))
    # An existing path is taken literally, even if it contains a glob character.
    paths = [absolute] if os.path.exists(absolute) else glob.glob(absolute, recursive=True)
    found = []
    for path in paths:
        if splits := saved_splits(Path(path)):
            inside = os.path.join(pattern, splits[0])
            fault = f"{pattern} is a saved dataset with the splits {', '.join(splits)}"
            raise DataError(f"{fault}, needs one of them, such as {inside}")
        if splits == []:
            found += [os.path.join(path, name) for name in _data_files(Path(path))]
        elif os.path.isfile(path):
            found.append(path)
    return found


def _no_file(pattern: str, *folders: Path) -> str:
    """Why no file matches a pattern, which starts from one of these folders or is absolute."""
    path = os.path.expanduser(pattern)
    if any((folder / path).is_dir() for folder in folders or [Path()]):
        inside = os.path.join(pattern, "*.txt")
        return f"{pattern!r} is a folder, needs its files, such as {inside!r}"
    places = dict.fromkeys(str(folder.absolute()) for folder in folders)
    where = "" if os.path.isabs(path) else f" in {' nor in '.join(places)}"
    return f"no file matches {pattern!r}{where}"
