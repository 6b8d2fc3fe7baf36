"""Verdicts on claims: numbers in a store to words, with what is missing, odd or not learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from report_samples import BASE, finish, make_report, result, write_plan

from fope_lab.report import Report
from fope_lab.report.claims.judge import Verdict
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage

Table = Mapping[str, Mapping[int, list[float]]]
"""Embedding → length → the value under each seed."""

ACCURACIES: Table = {
    "nope": {32: [0.6, 0.5, 0.55], 64: [0.5, 0.4, 0.45], 128: [0.1, 0.2, 0.1]},
    "alibi": {32: [0.99, 1.0, 1.0], 64: [0.97, 0.99, 0.98], 128: [0.7, 0.72, 0.69]},
    "rope": {32: [1.0, 1.0, 1.0], 64: [1.0, 0.98, 0.99], 128: [0.3, 0.35, 0.31]},
    "fope": {32: [1.0, 1.0, 1.0], 64: [0.95, 0.97, 0.96], 128: [0.6, 0.75, 0.64]},
}
STAGES = {name: BASE["stages"][name] for name in ("pretrain", "passkey")}
SHARED: list[Store] = []
"""The store of the models with ACCURACIES, which claims about them alone share."""


@pytest.fixture(scope="module", autouse=True)
def _shared_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("shared")
    SHARED[:] = [Store(folder / "store")]
    finish(write_plan(folder, {"stages": STAGES}), SHARED[0], by_table(ACCURACIES))


def by_table(table: Table) -> Callable[[Stage, int | None], float]:
    """What a passkey stage reads, from a table; a loss that no claim is about."""

    def numbers(stage: Stage, length: int | None) -> float:
        if length is None:
            return 2.0
        return table[stage.embedding or ""][length][stage.seed or 0]

    return numbers


def judged(
    folder: Path,
    *claims: str,
    table: Table = ACCURACIES,
    changes: Mapping[str, Any] | None = None,
    section: Mapping[str, Any] | None = None,
    **done: Any,
) -> tuple[Verdict, ...]:
    """The verdicts on claims about a sweep whose passkey stages read what is in the table."""
    folder.mkdir(exist_ok=True)
    report = {"claims": [*claims], **(section or {})}
    plan = write_plan(folder, {"stages": STAGES, "report": report, **(changes or {})})
    if table is ACCURACIES and not changes and not done:
        return make_report(plan, SHARED[0]).verdicts
    store = Store(folder / "store")
    finish(plan, store, by_table(table), **done)
    return make_report(plan, store).verdicts


def one(folder: Path, claim: str, table: Table = ACCURACIES, **options: Any) -> Verdict:
    (verdict,) = judged(folder, claim, table=table, **options)
    return verdict


def changed(embedding: str, length: int, values: list[float]) -> Table:
    return {**ACCURACIES, embedding: {**ACCURACIES[embedding], length: values}}


def t_of(values: Any, null: float = 0, side: str = "two-sided") -> float:
    return float(scipy.stats.ttest_1samp(values, null, alternative=side).pvalue)


FOPE, ROPE, ALIBI = (np.array(ACCURACIES[name][128]) for name in ("fope", "rope", "alibi"))
FOPE_64, ROPE_64 = (np.array(ACCURACIES[name][64]) for name in ("fope", "rope"))
ALIBI_32, ALIBI_64 = (np.array(ACCURACIES["alibi"][length]) for length in (32, 64))
SLOPES = np.polyfit([5, 6, 7], [ACCURACIES["rope"][length] for length in (32, 64, 128)], 1)[0]
FORMS: dict[str, tuple[str, float]] = {
    "@128: fope > rope": ("holds", t_of(FOPE - ROPE)),
    "@128: rope > fope": ("fails", t_of(FOPE - ROPE)),
    "@128: alibi > fope": ("undecided", t_of(ALIBI - FOPE)),
    "@128: alibi >= fope - 0.2": ("holds", t_of(ALIBI - FOPE, -0.2, "greater")),
    "@128: rope >= fope - 0.2": ("fails", t_of(ROPE - FOPE, -0.2, "less")),
    "@128: fope <= rope * 1.5": ("fails", t_of(FOPE - 1.5 * ROPE, 0, "greater")),
    "@128: alibi >= fope - 0.01": ("undecided", t_of(ALIBI - FOPE, -0.01, "greater")),
    "@64: fope ~ rope within 0.1": (
        "holds",
        max(t_of(FOPE_64 - ROPE_64, -0.1, "greater"), t_of(FOPE_64 - ROPE_64, 0.1, "less")),
    ),
    "@64: fope ~ rope within 10%": (
        "holds",
        max(t_of(FOPE_64 - 0.9 * ROPE_64, 0, "greater"), t_of(FOPE_64 - 1.1 * ROPE_64, 0, "less")),
    ),
    "@128: fope ~ rope within 0.1": ("fails", 2 * t_of(FOPE - ROPE, 0.1, "greater")),
    "@128: fope > 0.4": ("holds", t_of(FOPE, 0.4)),
    "@128: 0.4 > fope": ("fails", t_of(FOPE, 0.4)),
    "@128 where embedding=fope: >= 0.4": ("holds", t_of(FOPE, 0.4) / 2),
    "@128: fope > 0.65": ("undecided", t_of(FOPE, 0.65)),
    "@32..128: rope falls": ("holds", t_of(SLOPES)),
    "@32..128: rope grows": ("fails", t_of(SLOPES)),
    "@32..128: alibi falls at most 0.4": (
        "holds",
        max(t_of(ALIBI_64 - ALIBI_32, -0.4, "greater"), t_of(ALIBI - ALIBI_32, -0.4, "greater")),
    ),
    "@32..128: alibi falls at most 0.1": ("fails", 2 * t_of(ALIBI - ALIBI_32, -0.1, "less")),
}
REASONS = {
    # by hand: 4.302653 (t of 2 degrees of freedom) · 0.051316 (s) / √3 = 0.1275 around 1.03 / 3
    "@128: fope > rope": "difference 0.343, 95 % interval 0.216 to 0.471",
    "@128: fope <= rope * 1.5": "mean of fope − 1.5 · rope",
    "@64: fope ~ rope within 0.1": "(limits −0.1 and 0.1)",
    "@128: fope > 0.4": "means fope 0.663; mean of fope (limit 0.4) 0.663, 95 %",
    "@32..128: rope falls": f"slope of rope per doubling of length −{-np.mean(SLOPES):.3g}",
    "@32..128: rope grows": "means rope@32 1.000, rope@64 0.990, rope@128 0.320;",
    "@32..128: alibi falls at most 0.4": "means alibi@32 0.997, alibi@64 0.980, alibi@128 0.703; ",
}
TESTS = {
    "@128: fope > rope": "paired t over 3 seeds, two-sided, α = 0.05",
    "@128: alibi >= fope - 0.2": "paired t over 3 seeds, one-sided, α = 0.05",
    "@128: fope > 0.4": "t over 3 seeds, two-sided, α = 0.05",
}


def test_each_form_has_scipys_numbers(tmp_path: Path) -> None:
    found = judged(tmp_path, *(f"passkey{claim}" for claim in FORMS))
    for verdict, (claim, (word, p)) in zip(found, FORMS.items(), strict=True):
        assert (verdict.verdict, verdict.p) == (word, pytest.approx(p, rel=1e-6)), claim
        assert (verdict.p or 0) < 0.05 or word == "undecided"
        assert (verdict.n, verdict.axes, verdict.unequal) == (3, {}, ())
        assert REASONS.get(claim, "") in verdict.reason
        assert verdict.test == TESTS.get(claim, verdict.test)
        assert ("the claim holds if all 2 bounds" in verdict.test) == (
            "~" in claim or "at most" in claim
        )
    mirrored = judged(tmp_path, "passkey@128: fope < rope", "passkey@128: rope < fope")
    assert [(one.verdict, one.p) for one in mirrored] == [
        ("fails", found[0].p),
        ("holds", found[0].p),
    ]
    low, high = scipy.stats.ttest_rel(ALIBI, FOPE).confidence_interval(0.9)
    limited = f"; difference (limit −0.2) 0.04, 90 % interval {low:.3g} to {high:.3g}"
    assert found[list(FORMS).index("@128: alibi >= fope - 0.2")].reason.endswith(
        limited.replace("-", "−")
    )


def test_a_chain_has_the_largest_p_and_fails_with_one_pair(tmp_path: Path) -> None:
    table = changed("fope", 128, [0.5, 0.56, 0.5])
    verdict = one(tmp_path / "a", "passkey@128: alibi > fope > rope", table)
    pairs = [("alibi", "fope"), ("fope", "rope")]
    ps = [scipy.stats.ttest_rel(table[a][128], table[b][128]).pvalue for a, b in pairs]
    assert (verdict.verdict, verdict.p) == ("holds", pytest.approx(max(ps), rel=1e-9))
    assert "intersection–union" in verdict.test
    assert "difference alibi − fope 0.183" in verdict.reason
    assert "difference fope − rope 0.2" in verdict.reason
    against = one(tmp_path / "b", "passkey@128: alibi > rope > fope", table)
    assert (against.verdict, against.p) == ("fails", pytest.approx(2 * ps[1], rel=1e-9))


def test_no_spread_has_the_sign_test(tmp_path: Path) -> None:
    table = {**changed("fope", 128, [0.5, 0.75, 0.5]), "rope": {**ACCURACIES["rope"]}}
    table["rope"] = {**ACCURACIES["rope"], 128: [0.25, 0.5, 0.25]}
    apart = one(tmp_path / "a", "passkey@128: fope > rope", table)
    assert (apart.verdict, apart.p) == ("undecided", 0.25)
    assert "difference 0.25 under each seed" in apart.reason
    assert apart.would_decide is not None
    assert apart.would_decide.seeds == 6
    against = one(tmp_path / "b", "passkey@128: fope < rope", table)
    assert (against.verdict, against.p) == ("undecided", 0.25)
    equal = one(tmp_path / "c", "passkey@32: fope > rope")
    assert (equal.verdict, equal.p, equal.n) == ("undecided", 1.0, 3)


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    verdict = one(tmp_path, "passkey@128: fope > rope", changes={"seeds": [0]})
    assert (verdict.verdict, verdict.p, verdict.n) == ("undecided", None, 1)
    assert verdict.reason.endswith("difference 0.3: one seed decides nothing")
    assert verdict.test == "paired t over seeds (at least 2 are needed), two-sided, α = 0.05"


def test_missing_seeds_are_left_out_of_both_and_told(tmp_path: Path) -> None:
    verdict = one(
        tmp_path,
        "passkey@128: fope > rope",
        fail={"passkey[embedding=rope,seed=1]": "out of memory"},
        skip=["passkey[embedding=fope,seed=9]"],
    )
    fope, rope = ([ACCURACIES[name][128][seed] for seed in (0, 2)] for name in ("fope", "rope"))
    expected = scipy.stats.ttest_rel(fope, rope)
    assert verdict.n == 2
    assert verdict.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert f"means fope {np.mean(fope):.3f}, rope {np.mean(rope):.3f}" in verdict.reason
    assert verdict.reason.endswith("; missing: rope under seed 1 (failed)")


NEVER = ["passkey[embedding=rope,seed=0]", "passkey[embedding=rope,seed=1]",
         "passkey[embedding=fope,seed=2]"]  # fmt: skip
NOTHING = [f"pretrain[embedding={name},seed={seed}]" for name in ACCURACIES for seed in range(3)]


@pytest.mark.parametrize(
    ("skip", "missing"),
    [
        (NEVER, "fope under seed 2 (not started), rope under seeds 0, 1 (not started)"),
        (NOTHING, "fope under every seed (not started), rope under every seed (not started)"),
    ],
)
def test_seeds_that_never_meet_decide_nothing(
    tmp_path: Path, skip: list[str], missing: str
) -> None:
    verdict = one(tmp_path, "passkey@128: fope > rope", skip=skip)
    assert (verdict.verdict, verdict.p, verdict.n) == ("undecided", None, 0)
    assert verdict.reason == f"no seed has both fope and rope; missing: {missing}"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_decides_nothing(tmp_path: Path, odd: float) -> None:
    table = changed("rope", 128, [0.3, odd, 0.31])
    verdict = one(tmp_path, "passkey@128: fope > rope", table)
    assert (verdict.verdict, verdict.p, verdict.n) == ("undecided", None, 3)
    assert "under seed 1: only finite values can be compared" in verdict.reason
    assert verdict.reason.startswith("rope is ")


# Models that did not learn the task


@pytest.mark.parametrize("claim", ["fope > nope", "nope > fope", "alibi > fope > nope"])
def test_models_that_did_not_learn_are_not_compared(tmp_path: Path, claim: str) -> None:
    verdict = one(tmp_path, f"passkey@128: {claim}")
    assert (verdict.verdict, verdict.p) == ("not trained", None)
    assert verdict.reason == (
        "nope has 0.400 under seed 1 at 64, within the training length 64, below the minimum of 0.8"
    )


def test_the_floor_is_the_files(tmp_path: Path) -> None:
    low = one(tmp_path / "a", "passkey@128: fope > nope", section={"learnt": 0.4})
    assert low.verdict == "holds"
    high = one(tmp_path / "b", "passkey@128: fope > rope", section={"learnt": 0.97})
    assert high.verdict == "not trained"
    assert high.reason.startswith("fope has 0.950 under seed 0 at 64")
    assert "rope" not in high.reason


def test_every_seed_must_reach_the_floor(tmp_path: Path) -> None:
    """Exactly there is enough, and one bad seed is not made up for by others."""
    table = changed("fope", 64, [0.75, 1.0, 1.0])
    claim = "passkey@128: fope > rope"
    assert one(tmp_path / "a", claim, table, section={"learnt": 0.75}).verdict == "holds"
    found = one(tmp_path / "b", claim, table, section={"learnt": 0.76})
    assert found.verdict == "not trained"


def test_without_a_reading_inside_nothing_is_known(tmp_path: Path) -> None:
    stages = {**STAGES, "passkey": {**STAGES["passkey"], "lengths": [128]}}
    verdict = one(tmp_path, "passkey@128: fope > rope", changes={"stages": stages})
    assert verdict.verdict == "not trained"
    assert verdict.reason == (
        "fope: nothing was measured within the training length 64;"
        " rope: nothing was measured within the training length 64"
    )


def test_a_perplexity_needs_no_floor(tmp_path: Path) -> None:
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}

    def numbers(stage: Stage, length: int | None) -> float:
        mean = {"fope": 400.0, "rope": 500.0}.get(stage.embedding or "", 450.0)
        return mean * (1 + 0.01 * (stage.seed or 0))

    report = {"claims": ["perplexity@256: fope < rope", "loss: fope < rope"]}
    plan = write_plan(tmp_path, {"stages": stages, "report": report})
    store = Store(tmp_path / "store")
    finish(plan, store, numbers)
    perplexity, loss = make_report(plan, store).verdicts
    assert (perplexity.verdict, loss.verdict) == ("holds", "holds")


def posgen_report(folder: Path, within: float) -> Report:
    """Four models of PosGen that are right about a share of tokens within the trained length."""
    folder.mkdir()
    stages = {
        "pretrain": {
            **BASE["stages"]["pretrain"],
            "data": {"task": "posgen", "subtask": "cot", "length": 64},
        },
        "posgen": {"kind": "posgen", "from": "pretrain", "subtask": "cot",
                   "length": 128, "count": 10},
    }  # fmt: skip
    plan = write_plan(folder, {"stages": stages, "report": {"claims": ["posgen: fope > rope"]}})
    store = Store(folder / "store")
    for stage in plan.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            beyond = {"fope": 0.7, "rope": 0.3}.get(stage.embedding or "", 0.5)
            values = {
                "posgen_ood_accuracy": beyond * (1 + 0.01 * (stage.seed or 0) ** 2),
                "posgen_accuracy": within,
            }
            measured = [Measurement(name=name, value=value) for name, value in values.items()]
            attempt.finish(result(*(measured if stage.kind == "posgen" else ())))
    return make_report(plan, store)


def test_posgen_has_its_own_floor(tmp_path: Path) -> None:
    (learned,) = posgen_report(tmp_path / "a", 0.9).verdicts
    assert learned.verdict == "holds"
    (not_learned,) = posgen_report(tmp_path / "b", 0.6).verdicts
    assert not_learned.verdict == "not trained"
    assert not_learned.reason == (
        "fope has 0.600 under seed 0 as posgen accuracy within the training length, below the"
        " minimum of 0.8; rope has 0.600 under seed 0 as posgen accuracy within the training"
        " length, below the minimum of 0.8"
    )


# Combinations, and models that differ


@pytest.mark.parametrize(
    ("part", "axis", "values"),
    [
        ("grid", "pretrain.train.learning_rate", [1e-3, 2e-3]),
        # In no key: a stage that two combinations share is done once, and has its place in both.
        ("zip", "pretrain.train.checkpoint_every", [100, 200]),
    ],
)
def test_each_combination_has_its_verdict(
    tmp_path: Path, part: str, axis: str, values: list[Any]
) -> None:
    changes = {part: {**BASE.get(part, {}), axis: values}}
    found = judged(tmp_path, "passkey@128: fope > rope", changes=changes)
    assert [(v.axes, v.verdict, v.n) for v in found] == [
        ({axis: value}, "holds", 3) for value in values
    ]
    where = f"{axis.rpartition('.')[2]}={values[1]}"
    pinned = one(tmp_path / "b", f"passkey@128 where {where}: fope > rope", changes=changes)
    assert pinned.axes == {}


def test_models_that_differ_in_more_are_told(tmp_path: Path) -> None:
    grid = {**BASE["grid"], "pretrain.train.tokens": [64_000, 128_000]}
    found = judged(
        tmp_path, "passkey@128 where embedding=rope: tokens=64e3 < 128e3", changes={"grid": grid}
    )
    (verdict,) = found
    assert verdict.unequal == ("tokens (64,000 and 128,000)",)
    chain = one(
        tmp_path / "b",
        "passkey@128 where embedding=rope: 64000 < 128000 < 192000",
        changes={"grid": {**grid, "pretrain.train.tokens": [64_000, 128_000, 192_000]}},
    )
    assert chain.unequal == (
        "tokens=64000 and tokens=128000: tokens (64,000 and 128,000)",
        "tokens=128000 and tokens=192000: tokens (128,000 and 192,000)",
    )


# Margins, constants and slopes


def test_a_rise_in_between_is_seen(tmp_path: Path) -> None:
    """The ends alone would not show it."""
    table = {**ACCURACIES, "fope": {32: [0.8] * 3, 64: [0.98, 0.99, 0.98], 128: [0.81, 0.8, 0.8]}}
    verdict = one(tmp_path, "passkey@32..128: fope grows at most 0.1", table)
    assert verdict.verdict == "fails"


def test_a_slope_along_an_axis_of_the_grid(tmp_path: Path) -> None:
    axis = "pretrain.train.learning_rate"
    grid = {**BASE["grid"], axis: [1e-3, 2e-3, 4e-3]}
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}

    def numbers(stage: Stage, length: int | None) -> float:
        return 10.0 + 1e3 * stage.axes[axis] * (1 + 0.02 * (stage.seed or 0) ** 2)

    report = {
        "claims": [
            "perplexity@64: rope grows with learning_rate",
            "perplexity@64: rope grows at most 10% with learning_rate",
        ]
    }
    plan = write_plan(tmp_path, {"stages": stages, "report": report, "grid": grid})
    store = Store(tmp_path / "store")
    finish(plan, store, numbers)
    trend, limit = make_report(plan, store).verdicts
    assert (trend.verdict, trend.n) == ("holds", 3)
    assert "slope of rope per doubling of learning_rate 1.55" in trend.reason
    assert limit.verdict == "fails"


def test_a_share_of_what_is_not_positive_decides_nothing(tmp_path: Path) -> None:
    table = changed("rope", 128, [0.3, 0.0, 0.31])
    verdict = one(tmp_path, "passkey@128: fope >= rope * 0.9", table)
    assert (verdict.verdict, verdict.p) == ("undecided", None)
    assert verdict.reason == (
        "rope is 0.000 under seed 1: a margin as a share needs positive numbers"
    )


@pytest.mark.parametrize(
    "claim",
    ["@128: nope > 0.05", "@128: nope >= fope - 0.9", "@128: nope ~ fope within 0.9",
     "@32..128: nope falls", "@32: rope > nope"],
)  # fmt: skip
def test_no_form_judges_models_that_did_not_learn(tmp_path: Path, claim: str) -> None:
    assert one(tmp_path, f"passkey{claim}").verdict == "not trained"


def analysed(folder: Path, claims: list[str], stages: Mapping[str, Any]) -> Report:
    """The report of analyses that found two numbers."""
    folder.mkdir(exist_ok=True)
    plan = write_plan(
        folder, {"stages": stages, "grid": {}, "seeds": [0], "report": {"claims": claims}}
    )
    store = Store(folder / "store")
    for stage in plan.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            record = ResultRecord(numbers={"gap_rope": 0.25, "gap_resonance_rope": 0.0})
            attempt.finish(record.as_json())
    return make_report(plan, store)


EXACT = {
    "angles.gap_rope: > 0": "holds",
    "angles.gap_rope: < 0": "fails",
    "angles.gap_rope: > 0.25": "fails",
    "angles.gap_rope: >= 0.25": "holds",
    "angles.gap_resonance_rope: ~ 0 within 1e-9": "holds",
    "angles.gap_rope: ~ 0.2 within 1%": "fails",
    "angles.gap_rope: > gap_resonance_rope": "holds",
    "angles.gap_resonance_rope: > gap_rope": "fails",
    "angles.gap_resonance_rope: <= gap_rope": "holds",
}


def test_numbers_without_a_model_are_compared_exactly(tmp_path: Path) -> None:
    stages = {"angles": {"kind": "analysis", "analysis": "rotation-angles"}}
    verdicts = analysed(tmp_path, list(EXACT), stages).verdicts
    assert [one.verdict for one in verdicts] == list(EXACT.values())
    assert {(one.p, one.n, one.test, one.by_chance) for one in verdicts} == {
        (None, 0, "exact: no seeds", 0.0)
    }
    assert verdicts[6].reason == "gap_rope 0.25, gap_resonance_rope 0"


def test_a_number_that_is_not_there_decides_nothing(tmp_path: Path) -> None:
    stages = {"angles": {"kind": "analysis", "analysis": "rotation-angles"}}
    claim = "angles.wavelength_rope: > 1"
    (verdict,) = analysed(tmp_path, [claim], stages).verdicts
    assert verdict.verdict == "undecided"
    assert verdict.reason == (
        "no seed has wavelength_rope; missing: wavelength_rope (done without this value)"
    )


def test_numbers_of_models_are_tested_over_their_seeds(tmp_path: Path) -> None:
    stages = {
        "pretrain": BASE["stages"]["pretrain"],
        "spectrum": {"kind": "analysis", "analysis": "spectrum", "from": "pretrain"},
    }
    claims = ["spectrum.power_near_zero: fope < rope"]
    plan = write_plan(tmp_path, {"stages": stages, "report": {"claims": claims}})
    store = Store(tmp_path / "store")
    values = {"fope": [0.1, 0.2, 0.15], "rope": [0.5, 0.7, 0.6]}
    for stage in plan.sweep.stages:
        with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
            share = values.get(stage.embedding or "", [0.0] * 3)[stage.seed or 0]
            numbers = {"power_near_zero": share} if stage.kind == "analysis" else {}
            attempt.finish(ResultRecord(numbers=numbers).as_json())
    (verdict,) = make_report(plan, store).verdicts
    expected = scipy.stats.ttest_rel(values["fope"], values["rope"]).pvalue
    assert (verdict.verdict, verdict.p) == ("holds", pytest.approx(expected, rel=1e-9))
    assert verdict.test.startswith("paired t over 3 seeds")
