"""Batches of an evaluation: who computes each of them is not the concern of what scores them.

The functions of this folder cut their work into a list of batches, always the same one, and take
the result of each batch in its order from a `Work`. It computes them here (`one_after_another`), or
takes some from other workers and from earlier attempts (fope_lab/evaluation/shared_work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

Batch = TypeVar("Batch")
Item = TypeVar("Item")
Result = tuple[NDArray[Any], ...]
"""What one batch gave: so many arrays, each of one dtype and number of dimensions in all batches of
a list."""


Work = Callable[..., Iterator[Result]]
"""What gives the results of batches, as `one_after_another` does.

Of every batch in order, either `compute` is called or `skip`, which must leave the model's random
numbers and caches as `compute` would. `skip` also takes the result, unless another worker is just
computing it. Batches that are not `divisible` need the results of those before them to be skipped:
every worker then computes all. The `repr` of a batch tells it from others."""


def one_after_another(
    batches: Sequence[Batch],
    compute: Callable[[Batch], Result],
    skip: Callable[[Batch, Result | None], None] = lambda batch, result: None,
    *,
    divisible: bool = True,
) -> Iterator[Result]:
    """Compute all batches in this process, and yield their results in order."""
    yield from map(compute, batches)


def batches_of(items: Sequence[Item], size: int) -> list[list[Item]]:
    """The items in lists of `size`, the last one shorter."""
    return [list(items[first : first + size]) for first in range(0, len(items), size)]
