"""Seeds until enough trainings have stopped early: which are asked for, which count, and what the
report says of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import make_report, write_plan

import fope_lab
from fope_lab.planning.needed_stages import plan_sweeps
from fope_lab.report import Report
from fope_lab.report.claims.seeds import CountedSeeds, follow_stops
from fope_lab.report.render.documents import render_html, render_markdown
from fope_lab.report.render.json import report_json
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.sweep import Sweep
from fope_lab.sweep.graph import Stage

STAGES: dict[str, Any] = {
    "pretrain": {
        "kind": "pretrain",
        "model": {"num_layers": 1, "num_heads": 1, "head_dim": 16},
        "tokenizer": "symbols:parity",
        "data": {"task": "algorithmic", "subtask": "parity", "length": 54},
        "train": {
            "tokens": 54000,
            "batch_tokens": 540,
            "learning_rate": 1e-3,
            "validate_every": 10,
            "stop_at_accuracy": 1,
        },
    },
    "exact": {"kind": "algorithmic", "from": "pretrain", "subtask": "parity", "lengths": [50, 100]},
}
RULE = {"first": 2, "at_most": 6, "until": {"stopped_early": 2}}
ENDINGS = {"rope": "srsxxx", "nope": "rrrrrr", "alibi": "sxxxxx"}
"""s for a training that stops early, r for one that does not, x for one that fails."""


def sweep_of(folder: Path, rule: Any = RULE) -> Sweep:
    grid = {"pretrain.embedding": list(ENDINGS)}
    report = {"claims": ["exact.algorithmic@100: rope > nope"], "learnt": 0}
    changes = {"stages": STAGES, "seeds": rule, "grid": grid, "report": report}
    return write_plan(folder, changes).sweep


def value(stage: Stage, length: int) -> float:
    return {"rope": 0.9, "nope": 0.3, "alibi": 0.5}[str(stage.embedding)] + stage.seed / 100  # type: ignore[operator]


def result(stage: Stage, stops: bool) -> ResultRecord:
    metrics = {metric.name: metric for metric in stage.spec.metrics()}
    if stage.spec.trains:
        loss = Measurement(name="loss", value=float(stage.seed or 0))
        return ResultRecord(metrics=(loss,), recorded={"stopped_early": stops})
    curve = next(metric for metric in metrics.values() if metric.xs)
    measured = [Measurement(name=curve.name, x=x, value=value(stage, x)) for x in curve.xs or ()]
    return ResultRecord(metrics=tuple(measured))


def go_on(sweep: Sweep, store: Store) -> None:
    """Do what is to be run until nothing is."""
    while True:
        [planned] = plan_sweeps([sweep], store)
        todo = [
            stage
            for stage in sweep.stages
            if planned.action(stage.key) == "run"
            and planned.states[stage.key].status is not Status.FAILED
            and all(planned.states[key].is_done for key in stage.parents.values())
        ]
        if not todo:
            return
        for stage in todo:
            word = "s" if stage.seed is None else ENDINGS[str(stage.embedding)][stage.seed]
            attempt = store.folder(stage.kind, stage.key).begin("test", {"config": stage.config})
            if word == "x" and stage.spec.trains:
                with pytest.raises(RuntimeError), attempt:
                    raise RuntimeError("no memory")
            else:
                with attempt:
                    attempt.finish(result(stage, word == "s").as_json())


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return sweep_of(tmp_path)


@pytest.fixture
def report(sweep: Sweep, store: Store) -> Report:
    go_on(sweep, store)
    [planned] = plan_sweeps([sweep], store)
    return make_report(planned, store)


def done(sweep: Sweep, store: Store, section: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for stage in sweep.by_section[section]:
        if store.folder(stage.kind, stage.key).is_done():
            found.setdefault(str(stage.embedding), []).append(stage.seed or 0)
    return found


def test_trainings_get_seeds_and_evaluations_those_that_count(
    sweep: Sweep, store: Store, report: Report
) -> None:
    """alibi's second seed failed, and no other is started in its place."""
    assert done(sweep, store, "pretrain") == {
        "rope": [0, 1, 2],
        "nope": [0, 1, 2, 3, 4, 5],
        "alibi": [0],
    }
    assert done(sweep, store, "exact") == {"rope": [0, 2], "nope": [0, 1], "alibi": [0]}
    [planned] = plan_sweeps([sweep], store)
    of = {(s.section, s.embedding, s.seed): planned.states[s.key].status for s in sweep.stages}
    assert of["exact", "rope", 1] is Status.NOT_NEEDED
    assert of["pretrain", "rope", 3] is Status.NOT_NEEDED
    assert of["pretrain", "alibi", 1] is Status.FAILED
    assert of["pretrain", "alibi", 2] is Status.IF_NEEDED


def test_means_and_claims_are_over_the_seeds_that_count(report: Report) -> None:
    means = {
        (cell.embedding, cell.metric.name): (cell.estimate.n, cell.estimate.mean)
        for cell in report.cells
        if cell.x in (None, 100)
    }
    assert means["rope", "loss"] == (2, 1.0)
    assert means["nope", "loss"] == (2, 0.5)
    [name] = {name for _, name in means} - {"loss"}
    assert means["rope", name] == (2, pytest.approx(0.91))
    assert means["nope", name] == (2, pytest.approx(0.305))
    [verdict] = report.verdicts
    assert (verdict.n, verdict.looks) == (1, None)  # seed 0 alone counts for both
    assert "seed" not in verdict.reason.partition("missing")[2]


def test_results_that_are_there_and_do_not_count_are_in_no_mean(
    tmp_path: Path, sweep: Sweep, store: Store, report: Report
) -> None:
    """A list of all seeds had them evaluated, too."""
    go_on(sweep_of(tmp_path, [0, 1, 2]), store)
    [planned] = plan_sweeps([sweep], store)
    again = make_report(planned, store)
    assert [cell.estimate for cell in again.cells] == [cell.estimate for cell in report.cells]
    frame = fope_lab.results(sweep, store)
    counted = frame[frame.embedding == "rope"].groupby("stage").seed.unique()
    assert {stage: list(seeds) for stage, seeds in counted.items()} == {
        "pretrain": [0, 2],
        "exact": [0, 2],
    }


def test_the_report_says_which_seeds_count(report: Report) -> None:
    page, text = render_html(report), render_markdown(report)
    for words in (
        "pretrain[embedding=rope]: seeds 0, 2 count; 2 of the 3 finished seeds stopped early.",
        "pretrain[embedding=nope]: seeds 0, 1 count; 0 of the 6 finished seeds stopped early.",
        "pretrain[embedding=alibi]: seed 0 counts; 1 of the 1 finished seed stopped early, and"
        " seeds may still be added.",
        "A claim about several trainings uses the seeds that count for all of them.",
    ):
        assert words in page
        assert words in text.replace("\\", "")
    seeds = json.loads(json.dumps(report_json(report)["seeds"]))
    assert seeds["until"] == {"stopped_early": 2}
    assert [one["counted"] for one in seeds["trainings"]] == [[0, 2], [0, 1], [0]]
    assert [one["settled"] for one in seeds["trainings"]] == [True, True, False]


STOPPED, RAN_OUT, UNSAID, OPEN = "stopped", "ran out", "says nothing", "open"


def training(words: list[str]) -> list[Any]:
    """The results of a training under each seed; older trainings say nothing of a stop."""
    recorded = {STOPPED: {"stopped_early": True}, RAN_OUT: {"stopped_early": False}}
    return [
        SimpleNamespace(
            stage=None,
            state=SimpleNamespace(is_done=word != OPEN),
            record=SimpleNamespace(recorded=recorded.get(word, {})),
        )
        for word in words
    ]


def follow(words: str, first: int = 3, wanted: int = 3) -> CountedSeeds:
    """A letter for each seed: s stopped early, r ran out, u says nothing of it, . is open."""
    names = {"s": STOPPED, "r": RAN_OUT, "u": UNSAID, ".": OPEN}
    return follow_stops(training([names[w] for w in words]), first, len(words), wanted)


@pytest.mark.parametrize(
    ("words", "asked", "may_ask", "counted", "out"),
    [
        ("........", 3, 8, (), ()),
        ("sss.....", 3, 3, (0, 1, 2), (3, 4, 5, 6, 7)),
        ("s.s.....", 3, 8, (0, 2), ()),
        ("srs.....", 4, 8, (0, 2), (1,)),
        ("sus.....", 4, 8, (0, 2), (1,)),
        ("srrs....", 5, 8, (0, 3), (1, 2)),
        ("srrss...", 5, 5, (0, 3, 4), (1, 2, 5, 6, 7)),
        ("rrr.....", 6, 8, (), ()),  # if none stops early, the first three count
        ("rrrrrrrr", 8, 8, (0, 1, 2), (3, 4, 5, 6, 7)),
        ("rrrrrrrs", 8, 8, (7,), (0, 1, 2, 3, 4, 5, 6)),
        ("ssssssss", 3, 3, (0, 1, 2), (3, 4, 5, 6, 7)),  # more were trained before
        (".ss.....", 3, 8, (1, 2), ()),
    ],
)
def test_what_is_asked_for_and_what_counts(
    words: str, asked: int, may_ask: int, counted: tuple[int, ...], out: tuple[int, ...]
) -> None:
    found = follow(words)
    assert (found.asked, found.may_ask, found.counted, found.out) == (asked, may_ask, counted, out)


def test_seeds_that_run_first_count_only_as_far_as_they_are_wanted() -> None:
    found = follow("ssss....", first=4, wanted=2)
    assert (found.asked, found.may_ask, found.settled) == (4, 4, True)
    assert found.ran == found.stopped == (0, 1, 2, 3)
    assert (found.counted, found.out) == ((0, 1), (2, 3, 4, 5, 6, 7))


@given(
    words=st.lists(st.sampled_from([STOPPED, RAN_OUT, UNSAID]), min_size=1, max_size=12),
    first=st.integers(1, 12),
    wanted=st.integers(1, 12),
    data=st.data(),
)
def test_whatever_ends_first_the_seeds_are_those_of_one_after_the_other(
    words: list[str], first: int, wanted: int, data: st.DataObject
) -> None:
    """Whichever of the seeds that are asked for ends next: the same seeds are trained, and what was
    known to count, or not to, stays so."""
    most = len(words)
    first, wanted = min(first, most), min(wanted, most)
    stops = [n for n, word in enumerate(words) if word == STOPPED]
    needed = most if len(stops) < wanted else max(first, stops[wanted - 1] + 1)
    within = [n for n in stops if n < needed]
    known = [OPEN] * most
    before: CountedSeeds | None = None
    while True:
        now = follow_stops(training(known), first, most, wanted)
        if before is not None:
            assert now.asked >= before.asked
            assert now.may_ask <= before.may_ask
            assert set(now.counted) >= set(before.counted)
            assert set(now.out) >= set(before.out)
        before = now
        open_ = [n for n in range(now.asked) if known[n] == OPEN]
        if not open_:
            break
        ended = data.draw(st.sampled_from(open_))
        known[ended] = words[ended]
    assert now.asked == now.may_ask == needed
    assert now.counted == tuple(within[:wanted] or range(wanted))
    assert set(now.out) == set(range(most)) - set(now.counted)
