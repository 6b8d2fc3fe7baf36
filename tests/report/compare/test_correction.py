"""Holm's correction beside its definition, and how many verdicts come out by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import BASE, finish, make_report, write_plan

from fope_lab.report import Report
from fope_lab.report.compare.correction import chance_rate, holm
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage

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


def report_of(folder: Path, section: dict[str, Any]) -> Report:
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}
    claims = [f"perplexity@64: {a} < {b}" for a, b in PAIRS]
    plan = write_plan(folder, {"stages": stages, "report": {"claims": claims, **section}})
    store = Store(folder / "store")
    finish(plan, store, numbers)
    return make_report(plan, store)


PAIRS = [("fope", "rope"), ("fope", "alibi"), ("nope", "rope")]
SPREAD = {"rope": [0.0, 0.3, -0.3], "nope": [0.2, -0.2, 0.1], "alibi": [0.1, 0.0, 0.2]}


def numbers(stage: Stage, length: int | None) -> float:
    """FoPE is below RoPE by 1 with p = 0.03, and more surely below ALiBi."""
    name, seed = stage.embedding or "", stage.seed or 0
    return {"fope": 9.0}.get(name, 10.0) + SPREAD.get(name, [0.0] * 3)[seed]


def test_the_verdict_is_that_of_the_adjusted_p(tmp_path: Path) -> None:
    alone = report_of(tmp_path, {})
    assert [one.verdict for one in alone.verdicts] == ["holds", "holds", "undecided"]
    assert [one.adjusted_p for one in alone.verdicts] == [None] * 3
    together = report_of(tmp_path, {"correction": "holm"})
    assert [one.p for one in together.verdicts] == [one.p for one in alone.verdicts]
    expected = holm([one.p for one in alone.verdicts])
    assert [one.adjusted_p for one in together.verdicts] == expected
    assert [one.verdict for one in together.verdicts] == ["undecided", "holds", "undecided"]
    assert 0.025 < (together.verdicts[0].p or 0) < 0.05
