"""How often verdicts on claims are wrong, by simulation, beside the rate that is allowed.

    python benchmarks/claims.py [SETS]

Each row draws SETS sets of seeds (20,000 by default, two minutes) in which the truth is known, and
judges a claim as the report does. The numbers of a seed have a part that all models share and a
part of each model; both are normal. "at most" is an upper bound: a claim of several parts errs less
often than one. Holm's rows are families of ten claims, of which the rate is that of any error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fope_lab.statistics.decision import (
    ALPHA,
    POWER,
    STUDENT_T,
    Bound,
    Outcome,
    chance_rate,
    decide,
    holm,
    seeds_needed,
)
from fope_lab.sweep.claims.compare import Contrast, Term, contrasts_along, contrasts_between
from fope_lab.sweep.claims.grammar import parse_claim
from fope_lab.sweep.claims.statement import ALONG, Statement

Values = NDArray[np.float64]
"""Numbers of models under seeds: (models, seeds)."""
SETS = 20_000
LEVEL = 20.0
"""The mean of every number, so that margins as a share have a meaning."""


@dataclass(frozen=True)
class Rate:
    """How often something happened in simulated sets, and how often it should."""

    what: str
    allowed: float
    measured: float
    bound: bool = False  # whether `allowed` is the most that it may be

    @property
    def line(self) -> str:
        """The row of a table."""
        allowed = f"{'at most ' if self.bound else ''}{self.allowed:.3f}"
        return f"{self.what:<78}  {allowed:>14}  {self.measured:.4f}"


def contrasts_of(statement: Statement, models: int, points: Sequence[float]) -> Sequence[Contrast]:
    """The contrasts of a statement about models `m0`, `m1`, … or about one along points."""
    if statement.verb in ALONG:
        names = [f"m0@{point:g}" for point in points]
        return contrasts_along(statement, "m0", "length", points, names)
    return contrasts_between(statement, [Term(f"m{i}", i) for i in range(models)])


def outcome_of(claim: str, values: Values, points: Sequence[float] = ()) -> Outcome:
    """The outcome of a claim `m0 > m1 > …` for numbers (models or points, seeds)."""
    statement = parse_claim(claim).statement
    bounds = [
        Bound(
            sum(weight * values[i] for i, weight in one.weights.items()).tolist(),
            one.null,
            one.side,
        )
        for one in contrasts_of(statement, len(values), points)
    ]
    outcome = decide(bounds, STUDENT_T, two_sided=statement.two_sided)
    assert outcome is not None
    return outcome


def drawn(means: Sequence[float], n: int, rng: np.random.Generator) -> Values:
    """Numbers under n seeds: a part that a seed gives all models, and one of each model."""
    shared = 2 * rng.standard_normal(n)
    return LEVEL + np.array(means)[:, None] + shared + rng.standard_normal((len(means), n))


def counts(
    claim: str,
    means: Sequence[float],
    n: int,
    sets: int,
    rng: np.random.Generator,
    points: Sequence[float] = (),
) -> dict[str, float]:
    """How often a claim gets each verdict."""
    found = {"holds": 0.0, "fails": 0.0, "undecided": 0.0}
    for _ in range(sets):
        outcome = outcome_of(claim, drawn(means, n, rng), points)
        found[outcome.verdict(outcome.p)] += 1 / sets
    return found


def single_claims(sets: int, rng: np.random.Generator) -> list[Rate]:
    """Claims of every form, at the worst of what is not so."""
    rates = []
    for n in (3, 5):
        found = counts("x: m0 > m1", (0, 0), n, sets, rng)
        decided = found["holds"] + found["fails"]
        rates.append(Rate(f"a > b, equal models, {n} seeds: decided", ALPHA, decided))
    found = counts("x: m0 > m1 > m2", (0, 0, 0), 4, sets, rng)
    chain = chance_rate(2, two_sided=True)
    decided = found["holds"] + found["fails"]
    rates.append(Rate("a > b > c, equal models: decided", chain, decided, bound=True))
    for claim, means in (("x: m0 >= m1 - 0.5", (-0.5, 0.0)), ("x: m0 <= m1 + 0.5", (0.5, 0.0))):
        found = counts(claim, means, 5, sets, rng)
        rates.append(Rate(f"{claim[3:]}, worse by the margin: holds", ALPHA, found["holds"]))
        rates.append(Rate(f"{claim[3:]}, worse by the margin: fails", ALPHA, found["fails"]))
    found = counts("x: m0 <= m1 * 1.05", (0.05 * LEVEL, 0.0), 5, sets, rng)
    rates.append(Rate("a <= b * 1.05, worse by the margin: holds", ALPHA, found["holds"]))
    for margin in (0.5, 4.0):
        found = counts(f"x: m0 ~ m1 within {margin}", (margin, 0.0), 5, sets, rng)
        words = f"a ~ b within {margin:g}, apart by the margin"
        rates.append(Rate(f"{words}: holds", ALPHA, found["holds"], bound=margin < 4))
        rates.append(Rate(f"{words}: fails", ALPHA, found["fails"], bound=True))
    found = counts("x@1..8: m0 grows", (0, 0, 0, 0), 4, sets, rng, points=(1, 2, 4, 8))
    decided = found["holds"] + found["fails"]
    rates.append(Rate("a grows, numbers that do not: decided", ALPHA, decided))
    for steps in ((0, 1, 0, 0), (0, 1, 1, 1)):
        found = counts("x@1..8: m0 grows at most 1", steps, 4, sets, rng, points=(1, 2, 4, 8))
        words = f"a grows at most 1, {sum(steps)} of 3 points at the limit"
        rates.append(Rate(f"{words}: holds", ALPHA, found["holds"], bound=True))
        rates.append(Rate(f"{words}: fails", ALPHA, found["fails"], bound=True))
    return rates


def families(sets: int, rng: np.random.Generator) -> list[Rate]:
    """Families of ten claims about equal models: any verdict that is wrong."""

    def independent() -> list[Outcome]:
        return [outcome_of("x: m0 > m1", drawn((0, 0), 4, rng)) for _ in range(10)]

    def one_baseline() -> list[Outcome]:
        values = drawn([0.0] * 11, 4, rng)
        return [outcome_of("x: m0 > m1", values[[i, 10]]) for i in range(10)]

    def half_true() -> list[Outcome]:
        """The first five hold beyond doubt, and can't be wrong."""
        values = [drawn((0, 0), 4, rng) for _ in range(5)]
        certain = [Outcome(1e-9, 1.0)] * 5
        return [*certain, *(outcome_of("x: m0 > m1", value) for value in values)]

    def margins() -> list[Outcome]:
        values = drawn([*[-0.5] * 10, 0.0], 4, rng)
        return [outcome_of("x: m0 >= m1 - 0.5", values[[i, 10]]) for i in range(10)]

    kinds: dict[str, tuple[Callable[[], list[Outcome]], Callable[[Outcome, str], bool]]] = {
        "ten equal pairs": (independent, lambda outcome, word: word != "undecided"),
        "ten models equal to one baseline": (
            one_baseline,
            lambda outcome, word: word != "undecided",
        ),
        "five equal pairs, five that differ": (
            half_true,
            lambda outcome, word: word != "undecided" and outcome.holds > 1e-9,
        ),
        "ten models worse by the margin": (margins, lambda outcome, word: word == "holds"),
    }
    rates = []
    for words, (draw, wrong) in kinds.items():
        uncorrected = corrected = expected = 0.0
        for _ in range(sets):
            outcomes = draw()
            adjusted = holm([outcome.p for outcome in outcomes])
            alone = sum(wrong(one, one.verdict(one.p)) for one in outcomes)
            together = sum(
                wrong(one, one.verdict(p))
                for one, p in zip(outcomes, adjusted, strict=True)
                if p is not None
            )
            expected += alone / sets
            uncorrected += (alone > 0) / sets
            corrected += (together > 0) / sets
        rates.append(Rate(f"{words}, Holm: any wrong", ALPHA, corrected, bound=True))
        rates.append(Rate(f"{words}, uncorrected: any wrong", 1.0, uncorrected, bound=True))
        wrong_ones = ALPHA * (5 if "five" in words else 10)
        rates.append(Rate(f"{words}, uncorrected: wrong verdicts", wrong_ones, expected))
    return rates


def power(sets: int, rng: np.random.Generator) -> list[Rate]:
    """Whether as many seeds as are said to decide a claim decide it as often as is said."""
    rates = []
    for claim, means in (
        ("x: m0 > m1", (1.2, 0.0)),
        ("x: m0 >= m1 - 1", (0.0, 0.0)),
        ("x: m0 ~ m1 within 2", (0.0, 0.0)),
        ("x: m0 > m1 > m2", (2.4, 1.2, 0.0)),
        ("x: m1 > m0", (1.2, 0.0)),
    ):
        n, word = seeds_of(claim, means)
        found = counts(claim, means, n, sets, rng)
        words = f"{claim[3:]} with means {means}, {n} seeds: {word}"
        rates.append(Rate(words, POWER, found[word]))
    return rates


def seeds_of(claim: str, means: Sequence[float]) -> tuple[int, str]:
    """The number of seeds that would decide a claim about models with these means, which spread by
    1, and the verdict that is right."""
    statement = parse_claim(claim).statement
    bounds = []
    for one in contrasts_of(statement, len(means), ()):
        mean = sum(weight * means[i] for i, weight in one.weights.items())
        spread = np.sqrt(sum(weight**2 for weight in one.weights.values()))
        bounds.append(Bound((mean - spread, mean, mean + spread), one.null, one.side))
    n = seeds_needed(bounds, two_sided=statement.two_sided, alpha=ALPHA)
    assert n is not None
    right = all((sum(b.differences) / 3 > b.null) == (b.side == "greater") for b in bounds)
    return n, "holds" if right else "fails"


def all_rates(sets: int) -> list[Rate]:
    """Every row, from one seed."""
    rng = np.random.default_rng(0)
    return [*single_claims(sets, rng), *families(sets // 5, rng), *power(sets // 2, rng)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="?", type=int, default=SETS, metavar="SETS")
    options = parser.parse_args()
    print(f"{'':<78}  {'allowed':>14}  measured")
    for rate in all_rates(options.sets):
        print(rate.line)


if __name__ == "__main__":
    main()
