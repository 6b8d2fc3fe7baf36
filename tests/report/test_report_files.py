"""A report in the store is replaced by a fuller one only; any other is put beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, finish, make_report, result, write_plan

from fope_lab.report.files import INPUTS, REPORT_FILES, write_report
from fope_lab.store import Store
from fope_lab.sweep import Plan

SMALL: dict[str, Any] = {"seeds": [0], "grid": {"pretrain.embedding": ["rope", "nope"]}}


def edited(folder: Path) -> Plan:
    """The same sweep after its learning rate was changed: every training has another key."""
    train = {**BASE["stages"]["pretrain"]["train"], "learning_rate": 1e-4}
    stages = {**BASE["stages"], "pretrain": {**BASE["stages"]["pretrain"], "train": train}}
    return write_plan(folder, {**SMALL, "stages": stages})


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in REPORT_FILES}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return write_plan(tmp_path, SMALL)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "reports" / "sample"


def test_a_fuller_report_replaces_the_one_before(plan: Plan, store: Store, page: Path) -> None:
    finish(plan, store, skip=["perplexity[embedding=rope,seed=0]"])
    write_report(make_report(plan, store), page)
    before = contents(page)
    finish_the_rest(plan, store)
    written = write_report(make_report(plan, store), page)
    assert (written.earlier, str(written)) == (None, str(page / "report.html"))
    assert contents(page) != before
    assert {path.name for path in page.iterdir()} == {*REPORT_FILES, INPUTS}


def finish_the_rest(plan: Plan, store: Store) -> None:
    done = [s.label for s in plan.sweep.stages if store.folder(s.kind, s.key).is_done()]
    [stage] = [stage for stage in plan.sweep.stages if stage.label not in done]
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.writer.log(32, {"perplexity_by_length": 9.0})
        attempt.finish(result(method="chunked"))


def test_an_emptier_report_leaves_the_full_one(plan: Plan, store: Store, page: Path) -> None:
    """The sweep was edited, or its store was damaged: the new report must be seen as well."""
    finish(plan, store)
    write_report(make_report(plan, store), page)
    before = contents(page)
    written = write_report(make_report(edited(plan.sweep.path.parent), store), page)
    assert written.earlier is not None
    assert contents(written.earlier) == before
    assert contents(page) != before
    assert str(written) == (
        f"{page / 'report.html'} (the previous report has 6 more finished stages:"
        f" {written.earlier / 'report.html'})"
    )
    assert written.earlier.name.startswith("before-20")


def test_two_sweeps_in_turn_keep_one_report_each(
    plan: Plan, store: Store, page: Path, tmp_path: Path
) -> None:
    other, others = edited(plan.sweep.path.parent), Store(tmp_path / "others")
    finish(plan, store)
    finish(other, others)
    for _ in range(3):
        write_report(make_report(plan, store), page)
        write_report(make_report(other, others), page)
    assert len(list(page.glob("before-*"))) == 2


def test_a_stage_with_other_numbers_is_another_report(
    plan: Plan, store: Store, page: Path, tmp_path: Path
) -> None:
    empty = Store(tmp_path / "empty")
    for factor in (1.0, 2.0):
        again = Store(tmp_path / f"store-{factor}")
        finish(plan, again, lambda stage, length, factor=factor: 3.0 * factor)
        write_report(make_report(plan, again), page)
        before = contents(page)
        written = write_report(make_report(plan, empty), page)
        assert written.earlier is not None
        assert contents(written.earlier) == before
    assert len(list(page.glob("before-*"))) == 2


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"stages": 3}', '{"stages": [3, {"state": "done"}]}']
)
def test_a_damaged_report_is_replaced(plan: Plan, store: Store, page: Path, damage: str) -> None:
    page.mkdir(parents=True)
    (page / "report.json").write_text(damage)
    finish(plan, store)
    write_report(make_report(plan, store), page)
    assert '"cells"' in contents(page)["report.json"]
