"""Corpora that need no download: parts of Python itself, and local files."""

from __future__ import annotations

import ast
import functools
import glob
import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from fope_lab.config.annotations import Doc
from fope_lab.config.problems import Problem
from fope_lab.data.corpora.base import Corpus, Pair, Split, sha256_of, split_items, split_texts
from fope_lab.data.problems import DataError


@dataclass(frozen=True, kw_only=True)
class PythonDocs(Corpus):
    """English text: the documentation that comes with Python (pydoc's topics, 0.5 MB)."""

    name = "python-docs"

    def identity(self) -> dict[str, Any]:
        return {"type": self.name, "sha256": sha256_of(text.encode() for text in self._topics())}

    def documents(self, split: Split) -> Iterator[str]:
        return split_texts(self._topics(), split)

    def _topics(self) -> list[str]:
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise DataError(
                "this Python was installed without its documentation (module pydoc_data)",
                (self.name,),
            ) from error
        return [topics[name] for name in sorted(topics)]


@dataclass(frozen=True, kw_only=True)
class PythonSource(Corpus):
    """Python code: the source of the standard library, without its packages (4.7 MB)."""

    name = "python-source"

    def identity(self) -> dict[str, Any]:
        return {"type": self.name, "sha256": sha256_of(standard_library(self.name))}

    def documents(self, split: Split) -> Iterator[Any]:
        return split_texts((source.decode() for source in standard_library(self.name)), split)


@dataclass(frozen=True, kw_only=True)
class PythonDocstrings(PythonSource):
    """Supervised pairs: the signature of a function of Python's standard library and its summary.

    The answer is the first line of the docstring. A signature that occurs several times counts
    once, so that no validation prompt is in the training split.
    """

    name = "python-docstrings"
    kind = "pairs"

    def documents(self, split: Split) -> Iterator[Pair]:
        return split_items(self._pairs(), split)

    def _pairs(self) -> Iterator[Pair]:
        seen = set()
        for source in standard_library(self.name):
            for node in ast.walk(ast.parse(source)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                summary = (ast.get_docstring(node) or "").partition("\n")[0].strip()
                prompt = f'def {node.name}({ast.unparse(node.args)}):\n    """'
                if summary and prompt not in seen:
                    seen.add(prompt)
                    yield prompt, summary


def _no_file(pattern: str, *folders: Path) -> str:
    """Why no file matches a pattern, which starts from one of these folders or is absolute."""
    path = os.path.expanduser(pattern)
    if any((folder / path).is_dir() for folder in folders or [Path()]):
        inside = os.path.join(pattern, "*.txt")
        return f"{pattern!r} is a folder, needs its files, such as {inside!r}"
    places = dict.fromkeys(str(folder.absolute()) for folder in folders)
    where = "" if os.path.isabs(path) else f" in {' nor in '.join(places)}"
    return f"no file matches {pattern!r}{where}"


@dataclass(frozen=True, kw_only=True)
class Files(Corpus):
    """Local text files (UTF-8), one document per file: a glob, a path, or a list of them."""

    name = "files"
    shorthand = "files"

    files: Annotated[
        str | tuple[str, ...], Doc("The files to read, or patterns such as texts/*.txt.")
    ]
    """The glob, path or list of them; a tuple of absolute paths once resolved."""
    cut: Annotated[
        Literal["paragraph", "exact"],
        Doc(
            "The place where the held-out tenth of a file begins: the nearest paragraph, or the"
            " character after nine tenths."
        ),
    ] = "paragraph"

    def resolved(self, base: Path) -> Self:
        patterns = self.places()
        problems = [] if patterns else [Problem(("files",), "found an empty list")]
        found: dict[str, None] = {}
        for index, pattern in enumerate(patterns):
            matches = _matches(pattern, base) or _matches(pattern, Path.cwd())
            if os.path.isabs(pattern) and not glob.has_magic(pattern):
                matches = [pattern]  # what reads it says whether it is there
            found.update(dict.fromkeys(matches))
            if not matches:
                at = ("files",) if isinstance(self.files, str) else ("files", index)
                problems.append(Problem(at, _no_file(pattern, base, Path.cwd())))
        if problems:
            raise DataError(problems)
        return replace(self, files=tuple(sorted(found)))

    def places(self) -> tuple[str, ...]:
        return (self.files,) if isinstance(self.files, str) else self.files

    def placed(self, base: Path, paths: Sequence[str]) -> dict[str, Any]:
        return {"files": list(paths)}

    def local_files(self) -> list[str]:
        gone = [path for path in self.files if not os.path.isfile(path)]
        if gone:
            raise DataError(Problem(("files",), _no_file(path)) for path in gone)
        return list(self.files)

    def identity(self) -> dict[str, Any]:
        digests = [bytes.fromhex(file_sha256(Path(path))) for path in self.local_files()]
        content = {"type": self.name, "documents": len(digests), "sha256": sha256_of(digests)}
        default = type(self).cut
        return content if self.cut == default else {**content, "cut": self.cut}

    def documents(self, split: Split) -> Iterator[str]:
        return split_texts(map(self._text, self.files), split, exactly=self.cut == "exact")

    def _text(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}", (self.name,)) from error
        except OSError as error:
            raise DataError(f"{path} can't be read: {error.strerror}", (self.name,)) from error


def standard_library(corpus: str) -> list[bytes]:
    """The sources of the standard library's modules, ordered by name. Raises DataError if this
    Python has none."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    if not sources:
        raise DataError(f"no source of the standard library in {folder}", (corpus,))
    return sources


def file_sha256(path: Path) -> str:
    """The hex SHA-256 of a file's content. Raises DataError if it can't be read."""
    try:
        status = path.stat()
        return _file_sha256(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


@functools.lru_cache(maxsize=4096)
def _file_sha256(path: Path, size: int, modified: int) -> str:
    """Cached by size and time: plans ask for it often."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(pattern: str, base: Path) -> list[str]:
    absolute = os.path.abspath(base / os.path.expanduser(pattern))
    # An existing path is taken literally, even if it contains a glob character.
    paths = [absolute] if os.path.isfile(absolute) else glob.glob(absolute, recursive=True)
    return [path for path in paths if os.path.isfile(path)]
