"""How many tokens of its rows a training computes: `length_groups` leave the padding out."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping

from fope_lab.data.recipe import Data
from fope_lab.stages.training import TrainingConfig


def computed_widths(spec: TrainingConfig) -> Mapping[int, float]:
    """The expected rows of a global batch by the tokens computed of each: with `length_groups`, a
    group is computed up to its longest row (trainers/step.py)."""
    train, data, workers = spec.train, spec.data, spec.resources.size
    rows = train.share(workers) // data.length
    if train.length_groups is None:
        return {data.length: rows * workers}
    of_worker = _widths(tuple(sorted(_ends(data).items())), rows, rows_at_once(spec))
    return {width: count * workers for width, count in of_worker.items()}


def rows_at_once(spec: TrainingConfig) -> int:
    """The most rows that a worker computes in one forward and backward pass."""
    train, workers = spec.train, spec.resources.size
    most = train.micro_batch(workers) // spec.data.length
    if train.length_groups is not None:
        rows = train.share(workers) // spec.data.length
        most = min(most, -(-rows // train.length_groups))
    return max(1, most)


@functools.lru_cache(maxsize=256)
def _widths(shares: tuple[tuple[int, float], ...], rows: int, size: int) -> Mapping[int, float]:
    """Expected rows of each width, of `rows` drawn from `shares` and cut into groups of `size`."""
    from scipy.special import bdtrc

    found: defaultdict[int, float] = defaultdict(float)
    for first in range(0, rows, size):
        members = min(size, rows - first)
        above = 0.0  # the probability of the widths that have been counted, the longest first
        tail = 0.0
        for width, share in reversed(shares):
            tail = min(tail + share, 1.0)
            at_least = 1.0 if width == shares[0][0] else float(bdtrc(first, rows, tail))
            found[width] += members * max(at_least - above, 0.0)
            above = at_least
    return found


def _ends(data: Data) -> Mapping[int, float]:
    """The share of the rows by where their last label stands."""
    total = sum(source.weight for source in data.mix)
    share: defaultdict[int, float] = defaultdict(float)
    for source in data.mix:
        known = None if source.task is None else source.task.label_ends()
        ends = known or (data.length,)
        for end in ends:
            share[min(end, data.length)] += source.weight / total / len(ends)
    return share
