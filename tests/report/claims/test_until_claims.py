"""Which seeds a sweep asks for as its results come, and the verdicts and counts that follow."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, Numbers, finish, make_report, typical_numbers, write_plan
from rich.console import Console

from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.needed_stages import NeededStates, plan_sweeps
from fope_lab.planning.plan_table import print_plan
from fope_lab.report.claims.judge import Verdict
from fope_lab.report.render.documents import render_html, render_markdown
from fope_lab.report.render.json import report_json
from fope_lab.report.render.terminal import claim_lines
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep import Sweep
from fope_lab.sweep.graph import Stage

RULE = {"first": 3, "at_most": 6, "until": "claims"}
CERTAIN, CLOSE = "perplexity@256: fope < nope", "perplexity@64: fope < rope"
EMBEDDINGS = ["nope", "alibi", "rope", "fope"]
STAGES = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}


def sweep_of(folder: Path, *claims: str, rule: Any = RULE, **changes: Any) -> Sweep:
    report = {"claims": list(claims), **changes.pop("report", {})}
    changes = {"stages": STAGES, "seeds": rule, "report": report, **changes}
    return write_plan(folder, changes).sweep


def noisy(stage: Stage, length: int | None) -> float:
    """As typical, but that fope and rope differ by chance alone at 64."""
    if length == 64 and stage.embedding in ("fope", "rope"):
        return 7.0 + random.Random(f"{stage.embedding} {stage.seed}").gauss(0, 0.1)
    return typical_numbers(stage, length)


def go_on(
    sweep: Sweep,
    store: Store,
    numbers: Numbers = noisy,
    fail: dict[str, str] | None = None,
    seed: int = 0,
) -> list[str]:
    """Do some of what the plan says is to be run, again and again until nothing is: the keys."""
    order = random.Random(seed)
    ran: list[str] = []
    while True:
        [planned] = plan_sweeps([sweep], store)
        done = {key for key, state in planned.states.items() if state.is_done}
        ready = [
            stage
            for stage in sweep.stages
            if planned.action(stage.key) == "run"
            and planned.states[stage.key].status is not Status.FAILED
            and done.issuperset(stage.parents.values())
        ]
        if not ready:
            return ran
        chosen = [s.key for s in order.sample(ready, order.randint(1, len(ready)))]
        skip = [s.label for s in sweep.stages if s.key not in done and s.key not in chosen]
        finish(planned, store, numbers, skip, fail)
        ran += chosen


def seeds(sweep: Sweep, store: Store) -> dict[str, list[int]]:
    """The seeds of the finished trainings of each embedding."""
    return {
        name: [
            stage.seed
            for stage in sweep.by_section["pretrain"]
            if stage.embedding == name and store.folder(stage.kind, stage.key).is_done()
        ]
        for name in EMBEDDINGS
    }


def verdicts(sweep: Sweep, store: Store) -> list[Verdict]:
    [planned] = plan_sweeps([sweep], store)
    return list(make_report(planned, store).verdicts)


def statuses(sweep: Sweep, store: Store) -> dict[str, set[Status]]:
    """The statuses of the stages of each seed."""
    [planned] = plan_sweeps([sweep], store)
    found: dict[str, set[Status]] = {}
    for stage in sweep.stages:
        found.setdefault(f"{stage.seed}", set()).add(planned.states[stage.key].status)
    return found


def test_at_first_the_first_seeds_of_everything(tmp_path: Path, store: Store) -> None:
    sweep = sweep_of(tmp_path, CERTAIN)
    [planned] = plan_sweeps([sweep], store)
    for stage in sweep.stages:
        compared = stage.section in ("pretrain", "perplexity") and stage.embedding in (
            "fope",
            "nope",
        )
        later = "if needed" if compared else "not needed"
        early = stage.seed is None or stage.seed < 3
        assert planned.action(stage.key) == ("run" if early else later), stage.label


def test_seeds_are_added_to_what_an_undecided_claim_compares_alone(
    tmp_path: Path, store: Store
) -> None:
    sweep = sweep_of(tmp_path, CERTAIN, CLOSE)
    go_on(sweep, store)
    found = seeds(sweep, store)
    assert found["alibi"] == [0, 1, 2]
    assert found["rope"] == found["fope"] == [*range(6)]
    certain, close = verdicts(sweep, store)
    assert certain.verdict == "holds"
    assert certain.looks == certain.n - 2
    assert found["nope"] == [*range(certain.n)]
    assert certain.added == tuple(range(3, certain.n))
    assert (close.verdict, close.n, close.looks) == ("undecided", 6, 4)
    assert statuses(sweep, store)["5"] == {Status.DONE, Status.NOT_NEEDED}


def test_the_order_in_which_stages_end_and_restarts_change_nothing(
    tmp_path: Path, store: Store
) -> None:
    """Each step plans anew from the store, as a run does that was killed before."""
    sweep = sweep_of(tmp_path, CERTAIN, CLOSE)
    go_on(sweep, store)
    other = Store(tmp_path / "other")
    go_on(sweep, other, seed=1)
    assert seeds(sweep, other) == seeds(sweep, store)
    assert verdicts(sweep, other) == verdicts(sweep, store)


def test_seeds_that_are_there_already_change_no_verdict(tmp_path: Path, store: Store) -> None:
    """All of them are there from a sweep with a list, and the claim stopped before the last."""
    claims = [CERTAIN, CLOSE, "perplexity@128: rope < nope"]
    sweep, listed = sweep_of(tmp_path, *claims), sweep_of(tmp_path, *claims, rule=[*range(6)])
    go_on(sweep, store)
    whole = Store(tmp_path / "whole")
    [planned] = plan_sweeps([listed], whole)
    finish(planned, whole, noisy)
    assert verdicts(sweep, whole) == verdicts(sweep, store)
    assert go_on(sweep, whole) == []


def test_with_a_larger_limit_it_goes_on_and_takes_no_verdict_back(
    tmp_path: Path, store: Store
) -> None:
    sweep = sweep_of(tmp_path, CERTAIN, CLOSE)
    go_on(sweep, store)
    before = verdicts(sweep, store)
    more = sweep_of(tmp_path, CERTAIN, CLOSE, rule={**RULE, "at_most": 7})
    assert len(go_on(more, store)) == 4  # a seed of two trainings and evaluations
    certain, close = verdicts(more, store)
    assert certain == before[0]
    assert (close.n, close.looks, close.added) == (7, 5, (3, 4, 5, 6))


def test_a_failed_stage_gets_no_seed_in_its_place(tmp_path: Path, store: Store) -> None:
    """And is run again by the next run, after which the claim goes on."""
    sweep = sweep_of(tmp_path, CLOSE)
    lost = "pretrain[embedding=fope,seed=4]"
    go_on(sweep, store, fail={lost: "no memory"})
    assert seeds(sweep, store)["rope"] == [*range(5)]
    [verdict] = verdicts(sweep, store)
    assert (verdict.verdict, verdict.n, verdict.looks) == ("undecided", 4, 2)
    [planned] = plan_sweeps([sweep], store)
    state = {stage.label: planned.states[stage.key] for stage in sweep.stages}
    assert state[lost].status is Status.FAILED
    assert state["pretrain[embedding=fope,seed=5]"].status is Status.IF_NEEDED
    finish(planned, store, noisy, skip=[x for x in state if "seed=5" in x])
    go_on(sweep, store)
    assert seeds(sweep, store)["rope"] == [*range(6)]


def test_among_the_first_seeds_too(tmp_path: Path, store: Store) -> None:
    sweep = sweep_of(tmp_path, CERTAIN)
    go_on(sweep, store, fail={"pretrain[embedding=fope,seed=1]": "no memory"})
    assert seeds(sweep, store)["nope"] == [0, 1, 2]
    [verdict] = verdicts(sweep, store)
    assert (verdict.verdict, verdict.p, verdict.looks) == ("undecided", None, 0)
    assert "begins at 3 seeds" in verdict.test
    assert "missing: fope under seed 1" in verdict.reason


def untrained(stage: Stage, length: int | None) -> float:
    return 0.3 if stage.kind == "passkey" else noisy(stage, length)


def infinite(stage: Stage, length: int | None) -> float:
    odd = stage.embedding == "fope" and length == 64 and stage.seed == 2
    return float("inf") if odd else noisy(stage, length)


@pytest.mark.parametrize(
    ("claim", "numbers", "word", "reason"),
    [
        ("passkey@128: fope > rope", untrained, "not trained", "below the minimum of 0.8"),
        (CLOSE, infinite, "undecided", "only finite values"),
    ],
)
def test_what_no_seed_would_decide_gets_none(
    tmp_path: Path, store: Store, claim: str, numbers: Numbers, word: str, reason: str
) -> None:
    sweep = sweep_of(tmp_path, claim, stages=BASE["stages"])
    go_on(sweep, store, numbers)
    assert seeds(sweep, store)["fope"] == [0, 1, 2]
    [verdict] = verdicts(sweep, store)
    assert (verdict.verdict, verdict.looks) == (word, 1)
    assert reason in verdict.reason


def test_every_form_of_claim_is_judged_by_looks(tmp_path: Path, store: Store) -> None:
    words = {
        "perplexity@256: rope < fope < nope": "fails",
        "perplexity@64: fope < rope < nope": "undecided",
        "perplexity@256: fope <= nope * 1.01": "holds",
        "perplexity@256: nope <= fope * 1.01": "fails",
        "perplexity@64: fope ~ rope within 20%": "holds",
        "perplexity@64..256: rope grows": "holds",
    }
    sweep = sweep_of(tmp_path, *words)
    go_on(sweep, store)
    found = verdicts(sweep, store)
    assert [verdict.verdict for verdict in found] == [*words.values()]
    for verdict in found:
        assert (verdict.n < 6) == (verdict.verdict != "undecided")
        assert "sequential t over" in verdict.test


def test_with_holms_correction_a_claim_goes_on_until_its_adjusted_p_decides(
    tmp_path: Path, store: Store
) -> None:
    claims = [CERTAIN, *(f"perplexity@{x}: fope < nope" for x in (32, 64, 128)), CLOSE]
    sweep = sweep_of(tmp_path, *claims, report={"correction": "holm"})
    go_on(sweep, store)
    for verdict in verdicts(sweep, store)[:4]:
        assert verdict.verdict == "holds"
        assert verdict.adjusted_p is not None
        assert verdict.adjusted_p < 0.05
    [planned] = plan_sweeps([sweep], store)
    stop = "A claim gets no more seeds once its own p is below 0.05 / 5 (Bonferroni)."
    assert stop in render_html(make_report(planned, store))


def test_what_another_sweep_needs_runs_in_any_case(tmp_path: Path, store: Store) -> None:
    (tmp_path / "other").mkdir()
    ruled = sweep_of(tmp_path, CERTAIN)
    other = sweep_of(tmp_path / "other", rule=[5], name="other")
    plans = plan_sweeps([ruled, other], store)
    for planned in plans:
        actions = {
            planned.action(stage.key) for stage in other.stages if stage.key in planned.states
        }
        assert actions == {"run"}
    shared = {stage.key for stage in other.stages}
    [alone] = plan_sweeps([ruled], store)
    for stage in ruled.stages:
        if stage.key not in shared:
            assert plans[0].action(stage.key) == alone.action(stage.key)


def test_a_list_of_seeds_is_left_as_it_is(tmp_path: Path, store: Store) -> None:
    listed = sweep_of(tmp_path, CERTAIN, rule=[0, 1, 2])
    [planned] = plan_sweeps([listed], store)
    states = dict(planned.states)
    assert NeededStates([listed], store).of(states) == states
    finish(planned, store, noisy)
    assert verdicts(listed, store)[0].test.startswith("paired t over 3 seeds")
    assert verdicts(listed, store)[0].looks is None


def test_the_report_says_how_often_it_looked_and_which_seeds_it_added(
    tmp_path: Path, store: Store
) -> None:
    sweep = sweep_of(tmp_path, CLOSE)
    go_on(sweep, store)
    [planned] = plan_sweeps([sweep], store)
    report = make_report(planned, store)
    lines = "\n".join(claim_lines(report.verdicts))
    for text in (render_html(report), render_markdown(report), lines):
        assert "seeds 3 to 5 were added for it" in text
    for text in (render_html(report), render_markdown(report)):
        assert "Seeds 0 to 2 always run." in text
        assert "seeds 3, 4, 5. There were 4 looks at 1 verdict." in text
        assert "they make no allowance for the looks" in text
        assert "a paired t-test after each seed, α = 0.05 for all looks together" in text
    assert "n = 6, 4 looks" in lines
    assert "that are needed are done" in report.summary.headline
    assert report.summary.missing == ()
    assert report_json(report)["seeds"] == {**RULE, "trainings": []}
    cells = {(c.embedding, c.x): c.estimate.n for c in report.cells}
    assert (cells["fope", 64], cells["nope", 64]) == (6, 3)


def test_a_plan_says_the_least_and_the_most_that_is_left(tmp_path: Path, store: Store) -> None:
    sweep = sweep_of(tmp_path, CERTAIN, CLOSE)
    estimate = estimate_plans(plan_sweeps([sweep], store), store)
    totals, rows = estimate.totals(), estimate.as_json()["stages"]
    certain = [row for row in rows if row["state"] == "run"]
    possible = certain + [row for row in rows if row["state"] == "if needed"]
    for name in ("tokens", "seconds"):
        assert totals["least"][name] == pytest.approx(sum(row[name] or 0 for row in certain))
        assert totals[name] == pytest.approx(sum(row[name] or 0 for row in possible))
    assert totals["least"]["stages"] == totals["run"] == len(certain)
    trained = {row["seed"] for row in possible if row["kind"] == "pretrain"}
    assert trained == {*range(RULE["at_most"])}
    console = Console(file=io.StringIO(), width=400)
    print_plan(estimate, console)
    assert re.search(r"\n3 to 6 seeds: .* of work, 26 to 44 stages", console.file.getvalue())  # type: ignore[attr-defined]

    go_on(sweep, store)
    left = estimate_plans(plan_sweeps([sweep], store), store).totals()
    assert left["least"]["stages"] == left["tokens"] == left["run"] == left["if needed"] == 0
    assert left["cached"] + left["not needed"] == left["stages"]
