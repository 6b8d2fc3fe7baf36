"""The smallest base of RoPE at which a head can tell similar tokens from others up to a length.

Men et al., "Base of RoPE Bounds Context Length", arXiv 2405.14591: a key like the query is expected
to score Σ_i cos(m·θ_i) more than another key, m tokens back, and the base must keep this sum from
becoming negative (Theorem 1). Whether it does is not monotone in the base: narrow ranges of bases
hold below others that fail, so that the smallest base depends on how fine the grid of bases is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress
from fope_lab.analysis.spectrum import plain_ticks
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import curve, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIT_FACTOR, FIT_EXPONENT = 0.0424, 1.628
"""The published fit: base = 0.0424 · length^1.628."""
LEAST_BASE = 10.0
"""Where the grid of bases begins."""
ROW = 256
"""The distances in a row of a table of sums."""
ROWS = 8
"""The rows that are computed at once: bases that fail soon need no more."""


def cosine_sums(bases: Floats, start: int, rows: int, head_dim: int) -> Floats:
    """Return Σ_i cos(m·θ_i) of each base for rows·ROW distances m from `start` on: (bases, …).

    cos(a + b) = cos a·cos b − sin a·sin b makes a matrix product of them, with few cosines.
    """
    frequencies = bases[:, None] ** (-np.arange(0, head_dim, 2) / head_dim)
    begins = (start + ROW * np.arange(rows))[:, None] * frequencies[:, None, :]
    within = frequencies[:, :, None] * np.arange(ROW)
    sums = np.cos(begins) @ np.cos(within) - np.sin(begins) @ np.sin(within)
    return np.asarray(sums.reshape(len(bases), rows * ROW))


def first_negative(bases: Floats, head_dim: int, length: int) -> NDArray[np.int64]:
    """Return the least distance at which the sum of cosines is negative, of each base (n,).

    It is length + 1 where the sum is not negative up to `length`.
    """
    found = np.full(len(bases), length + 1)
    for start in range(0, length + 1, ROWS * ROW):
        going = np.flatnonzero(found > length)
        for some in np.array_split(going, len(going) // ROW + 1):
            negative = cosine_sums(bases[some], start, ROWS, head_dim) < 0
            failed = negative.any(axis=1)
            distance = start + negative[failed].argmax(axis=1)
            found[some[failed]] = distance.clip(max=length + 1)
    return found


def published_fit(lengths: NDArray[np.int64]) -> Floats:
    """Return the smallest bases by the fit of Men et al., for these lengths in tokens."""
    return FIT_FACTOR * np.asarray(lengths, np.float64) ** FIT_EXPONENT


@dataclass(frozen=True, kw_only=True)
class BaseBound(
    Analysis,
    name="base-bound",
    source="Men et al., arXiv 2405.14591, Table 2",
    says="A context of some length needs a base of at least 0.0424 · length^1.628.",
    needs="nothing",
):
    """The smallest base whose sum of cosines is not negative up to each length."""

    head_dim: Annotated[int, Interval(ge=2, le=1024), Doc("The dimensions of a head.")] = 128
    lengths: Annotated[
        tuple[Annotated[int, Interval(ge=2, le=2**20)], ...],
        MinLen(1),
        EachOnce(),
        Doc("The context lengths, in tokens."),
    ] = (1024, 2048, 4096, 8192, 16_384, 32_768)
    step: Annotated[
        float, Interval(ge=1e-3, le=1), Doc("How much larger each base of the grid is.")
    ] = 0.005
    most: Annotated[float, Interval(gt=LEAST_BASE, le=1e12), Doc("The largest base.")] = 1e7

    def __post_init__(self) -> None:
        if self.head_dim % 2:
            raise DataError(Problem(("head_dim",), f"found {self.head_dim}, needs an even number"))

    def bases(self) -> Floats:
        """Return the grid of bases, the powers of 1 + step from 10 to `most`."""
        ratio = 1 + self.step
        first, last = (math.log(end) / math.log(ratio) for end in (LEAST_BASE, self.most))
        return np.asarray(ratio ** np.arange(math.ceil(first), math.floor(last) + 1))

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute `first_negative` (bases,), the distance at which each of `bases` fails.

        For each of the sorted `lengths`: `smallest`, the smallest base of the grid that holds up to
        it; `last_failing`, the largest base that fails; and the published `fit`. Raises DataError
        if no base of the grid holds up to a length.
        """
        bases, lengths = self.bases(), np.array(sorted(self.lengths))
        failing = first_negative(bases, self.head_dim, int(lengths[-1]))
        holds = failing > lengths[:, None]
        for length, held in zip(lengths, holds, strict=True):
            if not held.any():
                message = f"found {self.most:g}: no base up to it holds for {length} tokens"
                raise DataError(Problem(("most",), message, "a larger base"))
        # The smallest bases of all always fail, at a distance of a few tokens.
        last_failing = bases[len(bases) - 1 - (~holds[:, ::-1]).argmax(axis=1)]
        return {
            "bases": bases,
            "first_negative": failing,
            "lengths": lengths,
            "smallest": bases[holds.argmax(axis=1)],
            "last_failing": last_failing,
            "fit": published_fit(lengths),
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        names = {
            "smallest": "smallest base that holds up to {} tokens",
            "last_failing": "largest base that fails within {} tokens",
            "fit": "published fit for {} tokens",
        }
        return {
            **{
                f"{name}_{length}": words.format(length)
                for name, words in names.items()
                for length in sorted(self.lengths)
            },
            "exponent": "exponent of a power law through our smallest bases",
            "factor": "factor of that power law",
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """A single length has no power law."""
        found = {
            f"{name}_{length}": base
            for name in ("smallest", "last_failing", "fit")
            for length, base in zip(arrays["lengths"], arrays[name], strict=True)
        }
        if len(arrays["lengths"]) > 1:
            logs = np.log(arrays["lengths"]), np.log(arrays["smallest"])
            exponent, logarithm = np.polyfit(*logs, 1)
            found |= {"exponent": exponent, "factor": math.exp(logarithm)}
        return found

    def draw(self, arrays: Arrays) -> Figure:
        lengths = arrays["lengths"]
        names = {
            "smallest": "smallest base that holds",
            "last_failing": "largest base that fails",
            "fit": "Men et al.'s fit",
        }
        titles = ("Bases by context length", "Where a base fails")
        with panels(titles) as (figure, (by_length, by_base)):
            for slot, (name, text) in enumerate(names.items()):
                curve(by_length, arrays[name], slot, text, x=lengths)
            by_length.set(xlabel="context length, tokens", ylabel="base")
            curve(by_base, arrays["first_negative"], 0, x=arrays["bases"])
            by_base.set(xlabel="base", ylabel="first negative sum, tokens")
            for axes in (by_length, by_base):
                axes.set(xscale="log", yscale="log")
                plain_ticks(axes, "xy")
            legend(figure, by_length)
        return figure
