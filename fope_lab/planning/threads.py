"""How much faster a stage is on several threads of a CPU than on one."""

from __future__ import annotations

PARALLEL = 0.76
"""The share of a stage's time that all its threads divide; the rest, such as many small operations
on short tensors, takes as long on any number. It follows from benchmarks/cpus.py, where two threads
were 1.76 times as fast as one at mini, and 1.46 times at 20m (benchmarks/RESULTS.md); an EPYC with
avx2 only gave 1.64 and 1.59. More than two were not measured; for eight, it gives 3.0 times."""


def speed_up(threads: int) -> float:
    """The time on one thread over that on `threads` (Amdahl, AFIPS 1967)."""
    return 1 / (1 - PARALLEL + PARALLEL / threads)
