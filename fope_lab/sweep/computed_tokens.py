"""How many tokens of its batches a training computes: fewer than it reads with `length_groups`."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping

from fope_lab.data.recipe import Data
from fope_lab.stages import TrainingConfig


def computed_widths(spec: TrainingConfig) -> Mapping[int, float]:
    """The expected number of rows of a global batch by the tokens that are computed of each row.

    Without `length_groups` all rows are computed whole. With it, rows are sorted by where their
    last label stands, and each group of them is computed up to its longest row's
    (trainers/length_groups.py).
    """
    train, data, workers = spec.train, spec.data, spec.resources.size
    rows = train.share(workers) // data.length
    if train.length_groups is None:
        return {data.length: rows * workers}
    of_worker = _widths(tuple(sorted(_ends(data).items())), rows, rows_at_once(spec))
    return {width: count * workers for width, count in of_worker.items()}


def rows_at_once(spec: TrainingConfig) -> int:
    """The most rows that a worker computes in one forward and backward pass."""
    train, workers = spec.train, spec.resources.size
    rows = train.share(workers) // spec.data.length
    most = train.micro_batch(workers) // spec.data.length
    groups = train.length_groups
    return max(1, most if groups is None else min(most, -(-rows // groups)))


@functools.lru_cache(maxsize=256)
def _widths(shares: tuple[tuple[int, float], ...], rows: int, size: int) -> Mapping[int, float]:
    """The expected number of rows of each width, of `rows` that are drawn independently, sorted
    and cut into groups of `size`; `shares` has the rows' ends, the first first, and their shares.

    The longest of a group that follows j rows is at least w if more than j rows are: a binomial
    tail.
    """
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
    """The share of the rows by the number of tokens up to the last label; all of `length` for a
    source that does not know its own."""
    total = sum(source.weight for source in data.mix)
    share: defaultdict[int, float] = defaultdict(float)
    for source in data.mix:
        known = None if source.task is None else source.task.label_ends()
        ends = known or (data.length,)
        for end in ends:
            share[min(end, data.length)] += source.weight / total / len(ends)
    return share
