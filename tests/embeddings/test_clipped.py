"""The soft floor of frequencies against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from fope_lab.embeddings.clipped import Clipped
from fope_lab.embeddings.frequencies import rope_ladder

LADDER = rope_ladder(32, base=129.0, train_length=64)


@pytest.mark.parametrize("pairs", [2, 7, 16])
def test_the_slowest_pairs_fall_along_a_cosine(pairs: int) -> None:
    expected = np.array(LADDER.frequencies)
    expected[-pairs:] *= (1 + np.cos(np.linspace(0, np.pi, pairs))) / 2
    found = Clipped(pairs=pairs).apply(LADDER).frequencies
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    assert found[-1] == 0


def test_a_hard_one_stills_them() -> None:
    found = Clipped(pairs=3, hard=True).apply(LADDER).frequencies
    assert found == (*LADDER.frequencies[:-3], 0, 0, 0)
