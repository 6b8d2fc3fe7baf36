"""Holm's correction beside its definition, and how many verdicts come out by chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.statistics.decision import chance_rate, holm

ps = st.lists(st.none() | st.floats(0, 1), max_size=12)


@given(ps, st.floats(1e-6, 1))
def test_adjusted_below_alpha_is_what_holms_steps_reject(
    values: list[float | None], alpha: float
) -> None:
    """Step by step, as in the paper: compare the smallest p with α / m, the next with
    α / (m − 1), until one is not below."""
    left = sorted((p, i) for i, p in enumerate(values) if p is not None)
    rejected = set()
    for step, (p, i) in enumerate(left):
        if not (len(values) - step) * p < alpha:
            break
        rejected.add(i)
    adjusted = holm(values)
    assert {i for i, p in enumerate(adjusted) if p is not None and p < alpha} == (
        rejected if alpha < 1 else {i for i in rejected if adjusted[i] < 1}
    )


@given(ps)
def test_the_adjusted_keep_their_order_and_are_no_smaller(values: list[float | None]) -> None:
    pairs = [
        (p, q) for p, q in zip(values, holm(values), strict=True) if p is not None or q is not None
    ]
    assert all(p is not None and q is not None and p <= q <= 1 for p, q in pairs)
    assert [q for _, q in sorted(pairs)] == sorted(q for _, q in pairs)


def test_a_published_example() -> None:
    """p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") of R."""
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


def test_what_was_not_tested_counts() -> None:
    assert holm([0.02, None, None]) == [0.06, None, None]
    assert holm([]) == []


def test_rates_of_chance() -> None:
    assert chance_rate(1, two_sided=True) == pytest.approx(0.05)
    assert chance_rate(2, two_sided=True) == pytest.approx(0.025 + 0.025**2)
    assert chance_rate(4, two_sided=False) == pytest.approx(0.05)
