"""The test that adds seeds until a claim is decided, beside others, by simulation.

    python benchmarks/sequential.py [--first 5] [--at-most 20] [--paths 200000]

The differences of two models over the seeds are normal, and their mean is an effect in units of
their standard deviation. For each test and effect, the output is how often the test decides (for
equal models its error, α = 0.05 or less), and the mean number of seeds by then. The tests:

- `fope-lab`: the error is spent as n² / (n² + 100), exactly (fope_lab/report/compare/
  sequential.py). It stays valid when more seeds are added after the last.
- `share n/N`, `O'Brien–Fleming`: the error is spent by the share of the last look (Lan & DeMets,
  1983; Kim & DeMets, 1987), exactly as well. All is spent at the last look: no seed can be added.
- `O'Brien–Fleming, normal`: its levels for normal statistics, applied to p-values of the t-test.
- `e-value`: the mixture of likelihood ratios with a normal prior of variance 1 on the effect and
  the right Haar prior on the scale (Lai, 1976; Wang & Ramdas, arXiv 2310.03722), at 1/α. It is
  valid at any time, even if it began at the first seed.
- `uncorrected`: the t-test at α after each seed.
- `fixed`: one t-test at the last look.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fope_lab.statistics.decision import ALPHA
from fope_lab.statistics.sequential import Boundary, share_spent

Array = NDArray[np.float64]
EFFECTS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


def statistics_of(differences: Array, first: int) -> Array:
    """|t| at each look, (paths, looks), of differences (paths, seeds)."""
    n = np.arange(1, differences.shape[1] + 1)
    mean = differences.cumsum(axis=1) / n
    squares = np.maximum((differences**2).cumsum(axis=1) - n * mean**2, 1e-300)
    return np.abs(mean * np.sqrt(n * np.maximum(n - 1, 1) / squares))[:, first - 1 :]


def exact(first: int, last: int, share: Callable[[int], float]) -> Array:
    """The critical values that spend α by a function, exactly."""
    boundary = Boundary(first, ALPHA, share)
    return np.array([boundary.critical(n) for n in range(first, last + 1)])


def obrien_fleming(n: int, last: int) -> float:
    """The share of α that the spending function of O'Brien and Fleming's type has spent by n."""
    return float(2 * ndtr(ndtri(ALPHA / 2) / math.sqrt(n / last)) / ALPHA)


def of_normal_levels(first: int, last: int, share: Callable[[int], float], paths: int) -> Array:
    """Critical values of t whose p-values are the levels that are right for normal statistics.

    The levels are found by simulation.
    """
    rng = np.random.default_rng(1)
    n = np.arange(first, last + 1)
    z = np.abs(rng.standard_normal((5 * paths, last)).cumsum(axis=1)[:, first - 1 :] / np.sqrt(n))
    inside, spent, values = np.ones(len(z), bool), 0.0, []
    for look, seeds in enumerate(n):
        wanted = max(1, round((ALPHA * share(int(seeds)) - spent) * len(z)))
        values.append(np.partition(np.where(inside, z[:, look], 0), -wanted)[-wanted])
        crossing = inside & (z[:, look] >= values[-1])
        spent += float(crossing.mean())
        inside &= ~crossing
    return -np.asarray(stdtrit(n - 1, ndtr(-np.array(values))))


def of_e_value(first: int, last: int) -> Array:
    """The |t| from which the mixture's e-value is at least 1/α."""
    n = np.arange(first, last + 1, dtype=float)
    ratio = np.exp(2 / n * (math.log(1 / ALPHA) + np.log1p(n) / 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (n - 1) * (ratio - 1) / (1 - ratio / (1 + n))
    return np.where(ratio < 1 + n, np.sqrt(np.abs(square)), np.inf)


def tests_of(first: int, last: int, paths: int) -> Mapping[str, Array]:
    """The critical values of |t| at each look, by the name of the test."""
    freedom = np.arange(first, last + 1) - 1
    final = np.where(freedom + 1 == last, stdtrit(freedom, 1 - ALPHA / 2), np.inf)

    def late(n: int) -> float:
        return obrien_fleming(n, last)

    return {
        "fope-lab": exact(first, last, share_spent),
        "share n/N": exact(first, last, lambda n: n / last),
        "O'Brien–Fleming": exact(first, last, late),
        "O'Brien–Fleming, normal": of_normal_levels(first, last, late, paths),
        "e-value": of_e_value(first, last),
        "uncorrected": stdtrit(freedom, 1 - ALPHA / 2),
        f"fixed, {last} seeds": final,
    }


def main() -> None:
    """Print a table of how often each test decides, and of the seeds that it takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=5, help="Seeds at the first look.")
    parser.add_argument("--at-most", type=int, default=20, help="Seeds at the last look.")
    parser.add_argument("--paths", type=int, default=200_000, help="Simulated experiments.")
    args = parser.parse_args()
    first, last, paths = args.first, args.at_most, args.paths
    rng = np.random.default_rng(0)
    drawn = {
        effect: statistics_of(rng.standard_normal((paths, last)) + effect, first)
        for effect in EFFECTS
    }
    print(f"looks at {first} to {last} seeds, {paths:,} paths: decided, and mean seeds")
    heads = ["equal", *(f"d = {effect:g}" for effect in EFFECTS[1:])]
    print(f"{'test':<25}" + "".join(f"{head:>14}" for head in heads))
    seeds = np.arange(first, last + 1)
    for name, critical in tests_of(first, last, paths).items():
        line = f"{name:<25}"
        for statistics in drawn.values():
            crossed = statistics >= critical
            decided = crossed.any(axis=1)
            taken = np.where(decided, seeds[crossed.argmax(axis=1)], last)
            line += f"{decided.mean():>9.3f}{taken.mean():>5.1f}"
        print(line)
    p = 2 * stdtr(np.arange(first, last + 1) - 1, -exact(first, last, share_spent))
    print("fope-lab's levels for p of Student's t at each look:", *(f"{level:.2g}" for level in p))


if __name__ == "__main__":
    main()
