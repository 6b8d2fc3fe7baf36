"""A stopwatch, and a part of the standard library."""

from __future__ import annotations

import argparse
import fractions
import inspect
import logging
import operator
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fope_lab.data.corpora import python
from fope_lab.data.corpora.base import Split
from fope_lab.data.corpora.files import Files
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer


@pytest.fixture
def benchmark_seconds() -> Callable[[Callable[[], Any]], float]:
    """The best time of some calls, which other work on the machine disturbs least."""

    def measure(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(30):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    return measure


class WholeTexts(Files):
    """Text files of which nothing is held out."""

    def documents(self, split: Split) -> Iterator[str]:
        return self._documents() if split == "train" else iter(())


@pytest.fixture
def whole_texts(tmp_path: Path) -> Callable[..., WholeTexts]:
    """A corpus of these texts, written to 0.txt, 1.txt, … in the test's folder."""

    def write(*texts: str) -> WholeTexts:
        paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return WholeTexts(files=tuple(map(str, paths)))

    return write


@pytest.fixture
def pack(tmp_path: Path, whole_texts: Callable[..., WholeTexts]) -> Callable[[str], PackedCorpus]:
    """Prepares a text, all of it, with the byte tokenizer."""

    def write(text: str) -> PackedCorpus:
        write_packed(tmp_path, whole_texts(text), ByteTokenizer(), "train")
        return PackedCorpus(tmp_path, {})

    return write


@pytest.fixture(scope="module")
def few_modules() -> Iterator[None]:
    """Of the standard library: to parse all of it takes seconds."""
    modules = (argparse, fractions, inspect, logging, operator, tarfile, textwrap)
    sources = [Path(module.__file__).read_bytes() for module in modules]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python, "standard_library", lambda corpus: sources)
        yield
