"""Corpora that need no download, because every Python has them: its documentation and source."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.data.corpora.base import (
    ENDS,
    TENTHS,
    Corpus,
    Pair,
    Split,
    sha256_of,
    split_items,
    split_texts,
)
from fope_lab.data.problems import DataError


@dataclass(frozen=True, kw_only=True)
class PythonDocs(Corpus):
    """English text: the documentation that comes with Python (pydoc's topics, 0.5 MB)."""

    name = "python-docs"

    def held_out(self) -> str:
        return ENDS

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

    def held_out(self) -> str:
        return ENDS

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

    def held_out(self) -> str:
        return TENTHS

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


def standard_library(corpus: str) -> list[bytes]:
    """The sources of the standard library's modules, ordered by name. Raises DataError if this
    Python has none."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    if not sources:
        raise DataError(f"no source of the standard library in {folder}", (corpus,))
    return sources
