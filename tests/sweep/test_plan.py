"""What a run would do with each stage, and why; the plan as JSON and as a table."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from sweep_files import BASE, load, of

from fope_lab.config.devices import CPU
from fope_lab.config.processor import processor
from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.forecast import workload_of
from fope_lab.planning.plan_table import print_plan
from fope_lab.store.attempt import Attempt
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep import Plan, plan
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import ACTIONS, action, block_descendants, unfinished_parents

ROW = ["key", "name", "kind", "state", "reason", "parents", "axes", "seed"]
ROW += ["params", "tokens", "flops", "memory", "seconds", "gpu_hours", "cost", "estimate"]
ROW += ["nearest"]
Work = Callable[[Attempt], None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def two(tmp_path: Path) -> Plan:
    """A pretraining under two embeddings, and its perplexity."""
    stages = {name: BASE["stages"][name] for name in ("pretrain", "perplexity")}
    content = {"name": "two", "stages": stages, "grid": {"pretrain.embedding": ["rope", "nope"]}}
    return plan(load(tmp_path, content))


def stage(planned: Plan, name: str) -> Stage:
    [found] = [one for one in planned.sweep.stages if one.label == name]
    return found


def attempt(store: Store, stage: Stage, work: Work) -> None:
    """One attempt at a stage."""
    begun = store.folder(stage.kind, stage.key).begin("test", {})
    with contextlib.suppress(RuntimeError), begun as one:
        work(one)


def finish(one: Attempt) -> None:
    one.writer.save_checkpoint(5, lambda path: (path / "x").write_text("x") and None)
    one.finish({"loss": 1.0})


def save(step: int) -> Work:
    def work(one: Attempt) -> None:
        one.writer.save_checkpoint(step, lambda path: (path / "x").write_text("x") and None)

    return work


def fail(message: str) -> Work:
    def work(one: Attempt) -> None:
        raise RuntimeError(message)

    return work


def states(planned: Plan, store: Store) -> dict[str, tuple[str, str]]:
    found = plan(planned.sweep, store)
    return {
        one.label: (found.action(one.key), found.states[one.key].reason)
        for one in found.sweep.stages
    }


TRAIN, VALIDATION = "prepare-data[c4,byte,train]", "prepare-data[c4,byte,validation]"
ROPE, NOPE = "pretrain[embedding=rope,seed=0]", "pretrain[embedding=nope,seed=0]"
ROPE_TEXT, NOPE_TEXT = (name.replace("pretrain", "perplexity") for name in (ROPE, NOPE))


def test_nothing_in_the_store(two: Plan, store: Store) -> None:
    expected = {
        TRAIN: ("run", "not in the store"),
        ROPE: ("run", "not in the store; after prepare-data"),
        VALIDATION: ("run", "not in the store; held out: the split validation"),
        ROPE_TEXT: ("run", "not in the store; after pretrain, prepare-data"),
        NOPE: ("run", "not in the store; after prepare-data"),
        NOPE_TEXT: ("run", "not in the store; after pretrain, prepare-data"),
    }
    assert states(two, store) == expected
    without = {
        one.label: (two.action(one.key), two.states[one.key].reason) for one in two.sweep.stages
    }
    assert without == expected, "and without a store"


def test_every_state_with_its_reason(two: Plan, store: Store) -> None:
    for name in (TRAIN, VALIDATION, ROPE):
        attempt(store, stage(two, name), finish)
    attempt(store, stage(two, ROPE_TEXT), fail("no memory\nfor this"))
    attempt(store, stage(two, NOPE), save(7))
    found = states(two, store)
    for name in (TRAIN, VALIDATION, ROPE):
        assert found[name] == ("cached", "done in 0 s")
    assert found[ROPE_TEXT] == ("run", "failed earlier: no memory")
    assert found[NOPE] == (
        "resume",
        "from its checkpoint at step 7; interrupted earlier: no progress was recorded",
    )
    assert found[NOPE_TEXT] == ("run", "not in the store; after pretrain")


def test_a_stage_of_several_attempts_says_what_they_took_together(two: Plan, store: Store) -> None:
    for work in (fail("no memory"), save(7), finish):
        attempt(store, stage(two, TRAIN), work)
    path = store.folder(stage(two, TRAIN).kind, stage(two, TRAIN).key).paths.done
    done = json.loads(path.read_text())
    assert done["earlier"]["attempts"] == 2
    path.write_text(json.dumps(done | {"seconds": 5, "earlier": {"attempts": 2, "seconds": 7.25}}))
    assert states(two, store)[TRAIN] == ("cached", "done in 12 s over 3 attempts")


@pytest.mark.parametrize("message", ["", "  \n", "\n\nlater"])
def test_a_failure_without_a_first_line(two: Plan, store: Store, message: str) -> None:
    attempt(store, stage(two, TRAIN), fail(message))
    expected = "later" if "later" in message else "RuntimeError"
    assert states(two, store)[TRAIN] == ("run", f"failed earlier: {expected}")


def test_an_attempt_that_nobody_ended(two: Plan, store: Store) -> None:
    """A killed process, or one that is at work in this moment: only watching it could tell."""
    one = stage(two, TRAIN)
    running = store.folder(one.kind, one.key).begin("driver-1", {})
    try:
        assert states(two, store)[TRAIN] == ("run", "started by driver-1, still marked as running")
    finally:
        with running:
            pass
    assert states(two, store)[TRAIN] == ("run", "interrupted earlier: no progress was recorded")


@pytest.mark.parametrize("damaged", ["result.json", "checkpoint/0001-000000005/x"])
def test_a_finished_stage_that_was_damaged(two: Plan, store: Store, damaged: str) -> None:
    one = stage(two, TRAIN)
    attempt(store, one, finish)
    assert states(two, store)[TRAIN][0] == "cached"
    (store.folder(one.kind, one.key).path / damaged).unlink()
    state, reason = states(two, store)[TRAIN]
    assert f"finished earlier, but damaged or missing: {damaged}" in reason
    assert state == ("run" if damaged.startswith("checkpoint") else "resume")
    assert states(two, store)[ROPE][1].endswith("after prepare-data")


def test_a_cached_child_stays_cached_without_its_parent(two: Plan, store: Store) -> None:
    attempt(store, stage(two, ROPE_TEXT), finish)
    assert states(two, store)[ROPE_TEXT] == ("cached", "done in 0 s")
    assert states(two, store)[ROPE][0] == "run"


def test_planning_makes_no_store_and_reads_one_by_its_path(two: Plan, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "store"
    assert set(map(action, plan(two.sweep, missing).states.values())) == {"run"}
    assert not missing.parent.exists()
    attempt(Store(tmp_path / "store"), stage(two, TRAIN), finish)
    for path in (tmp_path / "store", str(tmp_path / "store")):
        assert plan(two.sweep, path).states[stage(two, TRAIN).key].is_done


def test_a_store_that_is_a_file_is_an_error(two: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is not a folder"):
        plan(two.sweep, tmp_path / "file")


def test_json_has_what_was_agreed(tmp_path: Path, store: Store) -> None:
    sweep = load(tmp_path, {**BASE, "seeds": [0, 1], "grid": {"pretrain.embedding": ["rope"]}})
    one = of(sweep, "pretrain")[0]
    attempt(store, one, finish)
    attempt(store, of(sweep, "pretrain")[1], save(1))
    found = estimate_plans([plan(sweep, store)], store).as_json()
    content = json.loads(json.dumps(found, allow_nan=False))
    assert list(content) == ["stages", "totals"]
    assert all(list(row) == ROW for row in content["stages"])
    assert [row["key"] for row in content["stages"]] == [s.key for s in sweep.stages]
    [row] = [row for row in content["stages"] if row["key"] == one.key]
    assert row == {
        "key": one.key,
        "name": "pretrain[embedding=rope,seed=0]",
        "kind": "pretrain",
        "state": "cached",
        "reason": "done in 0 s",
        "parents": one.parents,
        "axes": {"pretrain.embedding": "rope"},
        "seed": 0,
        "params": one.cost.parameters.total if one.cost.parameters else None,
        "tokens": one.cost.tokens,
        "flops": one.cost.flops,
        "memory": one.cost.memory,
        "seconds": pytest.approx(one.cost.flops / 4.5e10),
        "gpu_hours": 0.0,
        "cost": None,
        "estimate": "assumed: 45 GFLOP/s a core, and no start-up",
        "nearest": None,
    }
    rows = content["stages"]
    todo = [row for row in rows if row["state"] in ("run", "resume")]
    known = [row["seconds"] for row in todo if row["seconds"] is not None]
    totals = content["totals"]
    assert totals.pop("wall_seconds")["bound"] > 0
    assert totals.pop("saved")["stages"] == 0
    least = totals.pop("least")
    assert least == {name: totals[name] for name in least} | {"stages": len(todo)}
    assert totals == {
        "stages": len(rows),
        "asked": len(rows),
        "cached": 1,
        "resume": 1,
        "run": len(rows) - 2,
        "blocked": 0,
        "if needed": 0,
        "not needed": 0,
        "tokens": sum(row["tokens"] or 0 for row in todo),
        "flops": pytest.approx(sum(row["flops"] or 0 for row in todo)),
        "memory": max(row["memory"] or 0 for row in todo),
        "seconds": pytest.approx(sum(known)),
        "gpu_hours": 0.0,
        "cost": None,
        "unknown": len(todo) - len(known),
    }
    assert content["totals"]["tokens"] > 0
    assert {row["state"] for row in rows} <= set(ACTIONS)


def test_hours_on_a_gpu_are_not_known_yet(tmp_path: Path) -> None:
    content = {**BASE, "grid": {"pretrain.resources.gpus": [1]}}
    found = estimate_plans([plan(load(tmp_path, content))]).as_json()
    by_kind = {row["kind"]: row["gpu_hours"] for row in found["stages"]}
    assert by_kind["pretrain"] is None
    assert by_kind["passkey"] == 0.0
    assert found["totals"]["gpu_hours"] is None


def test_the_table_names_every_stage_and_the_totals(two: Plan, store: Store) -> None:
    attempt(store, stage(two, TRAIN), finish)
    console = Console(width=250, file=io.StringIO())
    planned = plan(two.sweep, store)
    print_plan(estimate_plans([planned], store), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    for one in planned.sweep.stages:
        [line] = [line for line in lines if line.startswith(one.label)]
        assert action(planned.states[one.key]) in line
        assert one.key[:8] in line
    totals: dict[str, Any] = estimate_plans([planned], store).as_json()["totals"]
    assert (
        f"two: 6 stages: 1 cached, 5 run; to do: {totals['tokens']:,} tokens, "
        f"{totals['flops']:.2e} FLOPs, {totals['memory'] / 2**30:.1f} GiB at most in a worker"
    ) in lines
    [time] = [line for line in lines if line.startswith("time: ")]
    assert "not counting 3 stages whose time is unknown: it may be far more" in time
    assert time.startswith("time: about "), "the rate is assumed"
    assert "; at best about " in time
    assert "least" not in time
    assert "less than" not in time
    notes = [
        "assumed: 45 GFLOP/s a core, and no start-up",
        "unknown until run (the input's size is not known in advance)",
        "unknown until run (the text's size is not known in advance; tokens or limit bounds it)",
    ]
    assert lines[-3:] == [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    by_name = {line.split()[0]: line for line in lines if "[" in line}
    assert " s [1] " in by_name[ROPE]
    assert " ? [2] " in by_name[VALIDATION]
    assert "[1]" not in by_name[TRAIN].removeprefix(TRAIN), "it is done"


def test_a_measured_time_without_what_is_unknown_is_a_bound(two: Plan, store: Store) -> None:
    rope = stage(two, ROPE)
    ran = {
        "device": CPU,
        "processor": processor(),
        "threads": 1,
        "workers": 1,
        "planned_workers": 1,
    }
    record = ran | {"work": asdict(workload_of(rope))}
    attempt(store, rope, lambda one: one.finish({"loss": 1.0}, record))
    console = Console(width=250, file=io.StringIO())
    print_plan(estimate_plans([plan(two.sweep, store)], store), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    [time] = [line for line in lines if line.startswith("time: ")]
    assert time.startswith("time: at least ")
    assert "; no order takes less than " in time
    assert "about" not in time


STORED = [s for s in Status if s not in (Status.WAITING, Status.BLOCKED)]


def node(key: str, *parents: str) -> Any:
    roles = {f"role {i}": parent for i, parent in enumerate(parents)}
    return SimpleNamespace(key=key, label=key.upper(), parents=roles)


@given(data=st.data())
def test_exactly_the_unfinished_descendants_of_failures_are_blocked(data: st.DataObject) -> None:
    """Against the transitive closure of a random graph."""
    size = data.draw(st.integers(1, 7))
    edges = [data.draw(st.sets(st.integers(0, i - 1))) if i else set() for i in range(size)]
    stages = [node(str(i), *map(str, sorted(edges[i]))) for i in range(size)]
    states = {one.key: StageState(data.draw(st.sampled_from(STORED))) for one in stages}

    def is_stopped(i: int) -> bool:
        """A finished stage needs its parents no more, so nothing stops at it or beyond it."""
        status = states[str(i)].status
        if status in (Status.DONE, Status.FAILED):
            return status is Status.FAILED
        return any(map(is_stopped, edges[i]))

    found = block_descendants(stages, states)
    for i, one in enumerate(stages):
        failed = states[one.key].status is Status.FAILED
        assert (found[one.key].status is Status.BLOCKED) == (is_stopped(i) and not failed)
        done = all(states[str(j)].status is Status.DONE for j in edges[i])
        assert (not unfinished_parents(one, states)) == done
