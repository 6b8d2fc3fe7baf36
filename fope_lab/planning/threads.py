"""How much faster a stage is on several threads of a CPU than on one."""

from __future__ import annotations

PARALLEL = 0.85
"""The share of a stage's time that all its threads divide; the rest, such as many small operations
on short tensors, takes as long on any number. It is an assumption, not a measurement, and makes 2
threads 1.7 times and 8 threads 3.9 times as fast as one."""


def speed_up(threads: int) -> float:
    """The time on one thread over that on `threads` (Amdahl, AFIPS 1967)."""
    return 1 / (1 - PARALLEL + PARALLEL / threads)
