"""A time model, fitted to finished stages: seconds from batches, tokens and FLOPs.

    seconds = (start-up + a·batches + b·tokens + c·FLOPs) · factor of the embedding

No coefficient is negative, so that more work never takes less time. Errors are relative, and a size
whose stages were slow for another reason weighs little (Huber's weights). A small ridge shares time
among terms that the sizes cannot separate, such as start-up and many small batches.

Where few sizes were measured, and a batch is as large in each, all time beside the start-up would
be that of FLOPs, and a larger model as slow for each of them as a tiny one. Then FLOPs take no
longer than at the rate that is assumed of the device, and batches the rest.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fope_lab.planning.workload import Workload

Numbers = NDArray[np.float64]

FLOPS = 3  # the column that every model has
COLUMNS = {1: (FLOPS,), 2: (0, FLOPS)}
"""The terms of a model of one and two sizes; with more sizes, all terms."""
HUBER = 0.3  # a relative error beyond which a size's weight falls
RIDGE = 1e-4
ROUNDS = 6
SAME = 0.01
"""The relative difference up to which batches count as equally large."""
FEWEST_OF_EMBEDDING = 5
"""The least number of sizes for an embedding to have a factor of its own."""


@dataclass(frozen=True)
class Timing:
    """The seconds that a workload took."""

    work: Workload
    seconds: float


@dataclass(frozen=True)
class TimeModel:
    """Seconds of start-up, of a batch, of a token and of a FLOP, and factors of some embeddings."""

    coefficients: tuple[float, float, float, float]
    factors: dict[str, float]
    stages: int

    def seconds(self, work: Workload) -> float:
        """Predict the seconds of `work`, whose FLOPs must be known."""
        terms = sum(c * x for c, x in zip(self.coefficients, _terms(work), strict=True))
        return terms * self.factors.get(work.embedding or "", 1.0)


def fit_time_model(timings: Iterable[Timing], rate: float = 0.0) -> TimeModel | None:
    """Fit a time model to stages whose FLOPs are known; None if there are none.

    `rate` is the FLOP/s that are assumed where nothing was measured, 0 for no assumption.
    """
    timings = list(timings)
    sizes = _sizes(timings)
    if not sizes:
        return None
    X = np.array([_terms(one.work) for one in sizes])
    y = np.array([one.seconds for one in sizes])
    columns = COLUMNS.get(len({tuple(row) for row in X}), (0, 1, 2, FLOPS))
    coefficients = _with_time_of_batches(_fit(X, y, columns), X, rate)
    factors = _factors(sizes, X @ coefficients / y)
    c = [float(value) for value in coefficients]
    return TimeModel((c[0], c[1], c[2], c[3]), factors, len(timings))


def _terms(work: Workload) -> tuple[float, float, float, float]:
    return 1.0, float(work.batches or 0), float(work.tokens or 0), float(work.flops or 0)


def _sizes(timings: Sequence[Timing]) -> list[Timing]:
    """A timing for each size and embedding, with the median of its seconds."""
    by_size: dict[tuple[object, ...], list[Timing]] = {}
    for timing in timings:
        if timing.seconds > 0:
            size = (timing.work.embedding, *_terms(timing.work))
            by_size.setdefault(size, []).append(timing)
    return [
        Timing(group[0].work, statistics.median(one.seconds for one in group))
        for group in by_size.values()
    ]


def _fit(X: Numbers, y: Numbers, columns: tuple[int, ...]) -> Numbers:
    """Coefficients of all columns that minimize the relative error, none of them negative.

    They are 0 outside `columns`. The error is (predicted − measured)/measured, reweighted.
    """
    weights = np.ones(len(y))
    coefficients = np.zeros(X.shape[1])
    for _ in range(ROUNDS):
        coefficients = _without_negatives(X / y[:, None], weights, columns)
        ratio = np.maximum(X @ coefficients / y, 1e-9)
        errors = np.abs(np.log(ratio))
        weights = np.minimum(1.0, HUBER / np.maximum(errors, 1e-12))
    return coefficients


def _with_time_of_batches(coefficients: Numbers, X: Numbers, rate: float) -> Numbers:
    """The coefficients, with what FLOPs take beyond the assumed rate as the time of batches.

    They are left as they are where batches or tokens have a time already, or batches of several
    sizes were measured. The times of the measured sizes stay the same, but for SAME.
    """
    batches, flops = X[:, 1], X[:, FLOPS]
    beyond = coefficients[FLOPS] - 1 / rate if rate else 0.0
    if beyond <= 0 or coefficients[1:FLOPS].any() or not batches.all():
        return coefficients
    of_batch = flops / batches
    if of_batch.max() > (1 + SAME) * of_batch.min():
        return coefficients
    start_up = coefficients[0]
    return np.array([start_up, beyond * float(np.median(of_batch)), 0.0, 1 / rate])


def _without_negatives(X: Numbers, weights: Numbers, columns: tuple[int, ...]) -> Numbers:
    """Coefficients ≥ 0 with which X's rows sum to 1: the best weighted ridge regression over all
    subsets of the columns.

    Every subset has the FLOPs, since time without them would say nothing of larger models.
    """
    root = np.sqrt(weights)
    best, least = np.zeros(X.shape[1]), math.inf
    *others, flops = columns
    for count in range(len(others), -1, -1):
        for combination in itertools.combinations(others, count):
            subset = [*combination, flops]
            A = X[:, subset] * root[:, None]
            scale = np.sqrt((A**2).mean(axis=0))
            ridge = math.sqrt(RIDGE * len(X) if count else 0.0) * np.eye(len(subset))
            rows = np.vstack([A / np.where(scale > 0, scale, 1.0), ridge])
            target = np.concatenate([root, np.zeros(len(subset))])
            z = np.linalg.lstsq(rows, target, rcond=None)[0]
            loss = float(((rows @ z - target) ** 2).sum())
            if (z >= 0).all() and z[-1] > 0 and loss < least:
                best, least = np.zeros(X.shape[1]), loss
                best[subset] = z / np.where(scale > 0, scale, 1.0)
    return best


def _factors(sizes: Sequence[Timing], ratios: Numbers) -> dict[str, float]:
    """Each embedding's time over the model's, shrunk to 1 as if it had been seen once more."""
    by_embedding: dict[str, list[float]] = {}
    for one, ratio in zip(sizes, ratios, strict=True):
        by_embedding.setdefault(one.work.embedding or "", []).append(-math.log(max(ratio, 1e-9)))
    return {
        name: math.exp(statistics.median(logs) * len(logs) / (len(logs) + 1))
        for name, logs in by_embedding.items()
        if len(logs) >= FEWEST_OF_EMBEDDING and len(by_embedding) > 1
    }
