"""The pairs of dimensions that a rotation acts on: their frequencies and their norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder


PAIRS = "pair of dimensions, fastest to slowest"
"""The label of an axis of pairs."""


def frequencies_of(model: Decoder) -> NDArray[np.float64]:
    """Return the frequencies of the pairs in radians per token (head_dim/2,), from fast to slow; 0
    for pairs that do not rotate."""
    frequencies = embedding_of(model, 0).inv_freq
    if frequencies is None:
        return np.zeros(model.config.head_dim // 2)
    return np.asarray(frequencies.double().cpu().numpy(), np.float64)


def rotated_frequencies(model: Decoder, analysis: str) -> NDArray[np.float64]:
    """Return `frequencies_of` a model whose embedding rotates.

    Raises DataError, which names the analysis, if the model's embedding rotates nothing.
    """
    embedding = embedding_of(model, 0)
    if not embedding.rotates:
        name = embedding.definition.name
        raise DataError(f"{analysis} needs an embedding that rotates, but {name} does not")
    return frequencies_of(model)


def by_pair(x: Tensor) -> Tensor:
    """Reshape (…, head_dim) to (…, 2, head_dim/2): pair i is dimensions i and i + head_dim/2."""
    return x.unflatten(-1, (2, -1))


def pair_norms(x: Tensor) -> Tensor:
    """Return the 2-norm of each pair of x (…, head_dim): float32 (…, head_dim/2)."""
    return by_pair(x.float()).norm(dim=-2)


def quarter_shares(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of the sum over pairs that the fastest and the slowest quarter have.

    `values` (…, pairs) is ordered from the fastest to the slowest pair; each share is (…), and 0
    where the sum is 0. Uniform values give a quarter each.
    """
    quarter = max(values.shape[-1] // 4, 1)
    total = values.sum(axis=-1)
    total = np.where(total == 0, 1.0, total)
    return values[..., :quarter].sum(axis=-1) / total, values[..., -quarter:].sum(axis=-1) / total
