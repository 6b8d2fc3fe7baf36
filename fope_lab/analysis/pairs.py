"""The pairs of dimensions that a rotation turns: their frequencies, and their shares of a norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.model.decoder import Decoder


def rotated_frequencies(model: Decoder, analysis: str) -> NDArray[np.float64]:
    """The frequencies of the pairs in radians per token (head_dim/2,): from fast to slow, and 0 for
    pairs that do not turn.

    Raises DataError, which names the analysis, for a model that rotates nothing.
    """
    embedding = embedding_of(model, 0)
    if embedding.inv_freq is None:
        name = embedding.definition.name
        raise DataError(f"{analysis} looks at pairs that a rotation turns, and {name} has none")
    return np.asarray(embedding.inv_freq.double().cpu().numpy())


def by_pair(x: Tensor) -> Tensor:
    """(…, head_dim) as (…, 2, head_dim/2): pair i is the dimensions i and i + head_dim/2."""
    return x.unflatten(-1, (2, -1))


def pair_norms(x: Tensor) -> Tensor:
    """The 2-norm of each pair: (…, head_dim) to float32 (…, head_dim/2)."""
    return by_pair(x.float()).norm(dim=-2)


def quarter_shares(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Which shares of the sum over pairs (…, pairs), ordered from the fastest to the slowest, are
    the fastest quarter's and the slowest quarter's: each (…), 0 where the sum is 0. Even use is a
    quarter each."""
    quarter = max(values.shape[-1] // 4, 1)
    total = values.sum(axis=-1)
    total = np.where(total == 0, 1.0, total)
    return values[..., :quarter].sum(axis=-1) / total, values[..., -quarter:].sum(axis=-1) / total
