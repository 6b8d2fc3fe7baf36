"""How much faster a stage is on several threads of a CPU than on one."""

from __future__ import annotations

PARALLEL = 0.76
"""The share of a stage's time that all its threads divide; the rest, such as many small operations
on short tensors, takes as long on any number. It is what the gain of a second thread means that
benchmarks/cpus.py measured: 1.64 times the speed of one for models of the size of mini, 1.59 for
20m (benchmarks/RESULTS.md). More than two threads were not measured: of 8, it makes 3.0 times."""


def speed_up(threads: int) -> float:
    """The time on one thread over that on `threads` (Amdahl, AFIPS 1967)."""
    return 1 / (1 - PARALLEL + PARALLEL / threads)
