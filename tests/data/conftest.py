"""A stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


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
