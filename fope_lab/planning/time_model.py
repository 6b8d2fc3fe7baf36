"""A law of time, fitted to stages that have run: seconds from batches, tokens and FLOPs.

    seconds = (start-up + a·batches + b·tokens + c·FLOPs) · what the embedding costs

No coefficient is negative, so that more work never takes less time. Errors are relative, and a size
whose stages were slow for another reason weighs little (Huber's weights). What the sizes can't tell
apart, start-up from many small batches say, is shared among the terms (a small ridge).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fope_lab.planning.workload import Work

Numbers = NDArray[np.float64]

FLOPS = 3  # the column that is always there
COLUMNS = {1: (FLOPS,), 2: (0, FLOPS)}
"""Which terms there are for one and two sizes; for more, all."""
HUBER = 0.3  # a relative error beyond which a size's weight falls
RIDGE = 1e-4
ROUNDS = 6
FEWEST_OF_EMBEDDING = 5
"""Sizes, before an embedding has a factor of its own."""


@dataclass(frozen=True)
class Taken:
    """The seconds that some work took."""

    work: Work
    seconds: float


@dataclass(frozen=True)
class Law:
    """Seconds for start-up, a batch, a token and a FLOP, and a factor for some embeddings."""

    coefficients: tuple[float, float, float, float]
    factors: dict[str, float]
    stages: int

    def seconds(self, work: Work) -> float:
        """What `work`, whose FLOPs are known, takes."""
        terms = sum(c * x for c, x in zip(self.coefficients, _terms(work), strict=True))
        return terms * self.factors.get(work.embedding or "", 1.0)


def fit_law(taken: Iterable[Taken]) -> Law | None:
    """The law of these stages; None if there are none. Their FLOPs are known."""
    taken = list(taken)
    sizes = _sizes(taken)
    if not sizes:
        return None
    X = np.array([_terms(one.work) for one in sizes])
    y = np.array([one.seconds for one in sizes])
    columns = COLUMNS.get(len({tuple(row) for row in X}), (0, 1, 2, FLOPS))
    coefficients = _fit(X, y, columns)
    factors = _factors(sizes, X @ coefficients / y)
    c = [float(value) for value in coefficients]
    return Law((c[0], c[1], c[2], c[3]), factors, len(taken))


def _terms(work: Work) -> tuple[float, float, float, float]:
    return 1.0, float(work.batches or 0), float(work.tokens or 0), float(work.flops or 0)


def _sizes(taken: Sequence[Taken]) -> list[Taken]:
    """One for each size and embedding, with the median of its seconds."""
    by_size: dict[tuple[object, ...], list[Taken]] = {}
    for one in taken:
        if one.seconds > 0:
            by_size.setdefault((one.work.embedding, *_terms(one.work)), []).append(one)
    return [
        Taken(group[0].work, statistics.median(one.seconds for one in group))
        for group in by_size.values()
    ]


def _fit(X: Numbers, y: Numbers, columns: tuple[int, ...]) -> Numbers:
    """Coefficients of all columns, none negative and 0 outside `columns`, of least relative error.

    The error is of the logarithm's first order, (predicted − taken)/taken, reweighted.
    """
    weights = np.ones(len(y))
    found = np.zeros(X.shape[1])
    for _ in range(ROUNDS):
        found = _without_negatives(X / y[:, None], weights, columns)
        ratio = np.maximum(X @ found / y, 1e-9)
        errors = np.abs(np.log(ratio))
        weights = np.minimum(1.0, HUBER / np.maximum(errors, 1e-12))
    return found


def _without_negatives(X: Numbers, weights: Numbers, columns: tuple[int, ...]) -> Numbers:
    """Coefficients ≥ 0 by which X's rows sum to 1, by weighted ridge regression on each subset of
    the columns: the subset of least loss.

    FLOPs are in each of them: time without them would say nothing of larger models.
    """
    root = np.sqrt(weights)
    best, least = np.zeros(X.shape[1]), math.inf
    *others, flops = columns
    for count in range(len(others), -1, -1):
        for some in itertools.combinations(others, count):
            chosen = [*some, flops]
            A = X[:, chosen] * root[:, None]
            scale = np.sqrt((A**2).mean(axis=0))
            ridge = math.sqrt(RIDGE * len(X) if count else 0.0) * np.eye(len(chosen))
            rows = np.vstack([A / np.where(scale > 0, scale, 1.0), ridge])
            target = np.concatenate([root, np.zeros(len(chosen))])
            z = np.linalg.lstsq(rows, target, rcond=None)[0]
            loss = float(((rows @ z - target) ** 2).sum())
            if (z >= 0).all() and z[-1] > 0 and loss < least:
                best, least = np.zeros(X.shape[1]), loss
                best[chosen] = z / np.where(scale > 0, scale, 1.0)
    return best


def _factors(sizes: Sequence[Taken], ratios: Numbers) -> dict[str, float]:
    """What each embedding costs against the law, shrunk to 1 as if it had been seen once more."""
    by_embedding: dict[str, list[float]] = {}
    for one, ratio in zip(sizes, ratios, strict=True):
        by_embedding.setdefault(one.work.embedding or "", []).append(-math.log(max(ratio, 1e-9)))
    return {
        name: math.exp(statistics.median(logs) * len(logs) / (len(logs) + 1))
        for name, logs in by_embedding.items()
        if len(logs) >= FEWEST_OF_EMBEDDING and len(by_embedding) > 1
    }
