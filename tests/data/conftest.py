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

from fope_lab.data.corpora import local


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


@pytest.fixture(scope="module")
def few_modules() -> Iterator[None]:
    """Of the standard library: to parse all of it takes seconds."""
    modules = (argparse, fractions, inspect, logging, operator, tarfile, textwrap)
    sources = [Path(module.__file__).read_bytes() for module in modules]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "standard_library", lambda corpus: sources)
        yield
