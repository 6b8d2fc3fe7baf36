"""How long a training takes in bfloat16 on a processor that has an instruction for it.

The time of a step in bfloat16 over that in float32 depends on the width W (hidden_size) of the
model: such a processor is about twice as quick at matrix products, and the rest of a step, whose
share falls with the width, takes a little longer. The law

    (0.48 + 52/W) / (1 + 40/W)

is fitted to medians of ratios on one thread of an EPYC with avx512_bf16 (benchmarks/training.py and
models of its kind): float32 took 1.2 times as long at width 64, 1.5 at 128, 1.8 at 256, 1.9 at 512.
"""

from __future__ import annotations


def bfloat16_share(width: int) -> float:
    """The time of a step in bfloat16 over that in float32, for a model of this width."""
    return (0.48 + 52 / width) / (1 + 40 / width)
