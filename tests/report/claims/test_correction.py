"""Verdicts of a file: Holm's correction, the seeds that would decide one, and rates of error by
simulation (benchmarks/claims.py with 150 sets instead of 20,000)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from report_samples import BASE, finish, make_report, write_plan

from benchmarks.claims import Rate, families, power, single_claims
from fope_lab.report import Report
from fope_lab.report.build import build_report
from fope_lab.report.claims.judge import WouldDecide
from fope_lab.statistics.decision import ALPHA, holm
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage


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


def test_a_verdict_says_how_many_seeds_and_what_they_take(tmp_path: Path) -> None:
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}
    claims = ["perplexity@64: fope < rope", "perplexity@64: alibi < nope"]
    plan = write_plan(tmp_path, {"stages": stages, "report": {"claims": claims}})
    store = Store(tmp_path / "store")

    def numbers(stage: Stage, length: int | None) -> float:
        if stage.embedding == "fope":
            return [9.0, 10.0, 9.5][stage.seed or 0]
        return 10.0 + (stage.embedding == "alibi") * [0.1, -0.1, 0.0][stage.seed or 0]

    finish(plan, store, numbers)
    priced: list[list[str]] = []

    def seconds(asked: list[Stage]) -> float:
        priced.append(sorted(stage.label for stage in asked))
        return 1800.0

    report = build_report(plan.sweep, store, provenance={}, seconds=seconds)
    found, nothing = report.verdicts
    assert found.verdict == nothing.verdict == "undecided"
    assert found.would_decide == WouldDecide(10, 7, 7 * 1800.0)
    assert found.would_decide.words == (
        "about 10 seeds would decide it, if the difference is what it seems: 7 more, about 3 h 30"
        " min of work"
    )
    looked_at = WouldDecide(10, 7, None, at_least=True)
    assert looked_at.words.startswith("at least 10 seeds would decide it")
    assert priced[0] == [
        f"{kind}[embedding={name},seed=0]"
        for kind in ("perplexity", "pretrain")
        for name in ("fope", "rope")
    ]
    assert nothing.would_decide == WouldDecide(None, None, None)
    unpriced = make_report(plan, store).verdicts[0].would_decide
    assert unpriced == dataclasses.replace(found.would_decide, seconds=None)


def test_too_few_seeds_say_nothing(tmp_path: Path) -> None:
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}
    section = {"claims": ["perplexity@64: fope < rope"]}
    plan = write_plan(tmp_path, {"stages": stages, "report": section, "seeds": [0, 1]})
    store = Store(tmp_path / "store")
    finish(plan, store, lambda stage, length: 5.0 + (stage.seed or 0) * (stage.embedding == "fope"))
    (verdict,) = make_report(plan, store).verdicts
    assert (verdict.verdict, verdict.would_decide) == ("undecided", None)


SETS = 150
CHANCE = 1e-5
"""How rarely a right rate may be called wrong."""


def check(rates: list[Rate], sets: int) -> None:
    assert len({rate.what for rate in rates}) == len(rates)
    for rate in rates:
        low, high = scipy.stats.binom.ppf([CHANCE, 1 - CHANCE], sets, min(rate.allowed, 1.0)) / sets
        assert rate.measured <= high, rate.line
        assert rate.bound or rate.measured >= low, rate.line


def test_every_form_errs_as_often_as_it_may() -> None:
    check(single_claims(SETS, np.random.default_rng(1)), SETS)


def test_holms_families_err_as_often_as_one_claim_may() -> None:
    sets = 60
    rates = families(sets, np.random.default_rng(2))
    check([rate for rate in rates if "wrong verdicts" not in rate.what], sets)
    for rate in rates:
        if "wrong verdicts" in rate.what:  # a sum of up to ten that may come together
            assert rate.measured == pytest.approx(rate.allowed, abs=5 * 10 * ALPHA / sets**0.5)
    without = [rate.measured for rate in rates if "uncorrected: any" in rate.what]
    assert min(without) > 2 * ALPHA


def test_as_many_seeds_as_are_said_to_decide_a_claim_do() -> None:
    check(power(SETS, np.random.default_rng(3)), SETS)
