"""The end of a run: whatever else goes wrong, the failures of stages are printed."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from uploads_here import UploadsHere

from fope_lab.orchestration import controller
from fope_lab.orchestration import run_sweeps as running
from fope_lab.orchestration.nodes import ResourcesError
from fope_lab.orchestration.run_sweeps import report_of_sweep
from fope_lab.report.files import REPORT_FILES
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.ledger import Ledger, recorded_sweeps
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uploads import Uploads

SWEEP = """
name: two-seeds
seeds: [0, 1]
stages:
  pretrain:
    kind: pretrain
    model: {scale: tiny}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 4096, batch_tokens: 1024, learning_rate: 1e-3}
"""


def broken(*_: object, **__: object) -> None:
    raise OSError("no space left on the device")


class Run:
    """A run whose pretrainings failed, without Ray."""

    def __init__(self, folder: Path) -> None:
        path = folder / "sweep.yaml"
        path.write_text(SWEEP)
        self.sweep, self.store = load_sweep(path), folder / "store"
        self.states: Mapping[str, StageState] = {
            stage.key: StageState(Status.FAILED, f"{stage.label} went wrong")
            if stage.kind == "pretrain"
            else StageState(Status.DONE)
            for stage in self.sweep.stages
        }
        self.output = io.StringIO()

    def __call__(self) -> Mapping[str, StageState]:
        return running.run_sweeps(
            [self.sweep],
            UploadsHere(),
            store=str(self.store),
            tracking_uri=None,
            address="local",
            console=Console(file=self.output, width=200),
        )

    def ended(
        self, *_: object, tracker: Tracker, uploads: Uploads, **__: object
    ) -> Mapping[str, StageState]:
        """What the stages end with, once their upload has begun, in place of `_run_stages`."""
        uploads.start(tracker, [self.sweep.name])
        return self.states

    def assert_failures_are_printed(self) -> None:
        reasons = [state.reason for state in self.states.values() if state.reason]
        assert len(reasons) == 2
        names = "pretrain[seed=0], pretrain[seed=1]"  # the two errors are the same but for these
        cause = f"failed 2 stages: {reasons[0]}\n  {names}\n"
        assert self.output.getvalue().count(cause) == 1
        assert reasons[1] not in self.output.getvalue()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.parametrize("name", ["build_report", "print_report"])
def test_a_broken_report_hides_no_failure(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_run_stages", run.ended)
    monkeypatch.setattr(running, name, broken)
    with pytest.raises(OSError, match="no space left"):
        run()
    run.assert_failures_are_printed()


def test_a_failure_is_told_as_a_cause_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`report` lists the stages that are missing; a run has told why."""
    monkeypatch.setattr(running, "_run_stages", run.ended)
    run()
    run.assert_failures_are_printed()
    assert "Missing:" not in run.output.getvalue()
    out = io.StringIO()
    report_of_sweep(run.sweep, Store(run.store), None).print(Console(file=out, width=200))
    assert "Missing:\n  prepare-data[" in out.getvalue()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_run_that_ends_early_hides_no_failure(
    error: type[BaseException], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage failed an hour before Ctrl-C, or before Ray itself met the full disk."""

    def run_stages(*_: object, watch: Any, **__: object) -> None:
        with watch(lambda: run.states, lambda: {"CPU": 1.0}, list):
            raise error

    monkeypatch.setattr(controller, "run_stages", run_stages)
    with pytest.raises(error):
        run()
    run.assert_failures_are_printed()
    assert ("Run the same command again" in run.output.getvalue()) is (error is KeyboardInterrupt)


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (running, "write_report", "report: not written (no space left on the device)"),
        (Ledger, "record_report", "the store can't record two-seeds for MLflow: no space left"),
        (Ledger, "save_outline", "the store can't record two-seeds for MLflow: no space left"),
    ],
)
def test_a_full_disk_costs_the_report_but_not_the_end_of_the_run(
    owner: Any, name: str, told: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_run_stages", run.ended)
    monkeypatch.setattr(owner, name, broken)
    assert len(run()) == 2
    assert told in run.output.getvalue()
    run.assert_failures_are_printed()


def test_a_broken_upload_costs_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_run_stages", run.ended)
    monkeypatch.setattr(Tracker, "project", broken)
    assert len(run()) == 2
    lines = [line for line in run.output.getvalue().splitlines() if "not up to date" in line]
    assert len(lines) == 1
    assert "no space left on the device. Run `fope-lab sync --store" in lines[0]
    run.assert_failures_are_printed()


def test_an_upload_that_did_not_finish_is_not_tried_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread still holds the lock, so that another try could only wait for it."""
    slow = "MLflow was too slow"

    def run_stages(*given: Any, uploads: Uploads, **named: Any) -> Any:
        uploads.unreachable = slow
        return run.ended(*given, uploads=uploads, **named)

    monkeypatch.setattr(running, "_run_stages", run_stages)
    monkeypatch.setattr(UploadsHere, "flush", broken)
    run()
    advice = f"Run `fope-lab sync --store {run.store}` to finish it.\n"
    assert f"MLflow is not up to date: MLflow was too slow. {advice}" in run.output.getvalue()
    files = run.store / "tracking" / "sweeps" / "two-seeds"  # which `sync` then sends
    assert {file.name for file in files.glob("report.*")} == {*REPORT_FILES, "report.meta.json"}


def test_nothing_is_in_mlflow_of_a_run_that_was_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_stages(*_: object, **__: object) -> None:
        raise ResourcesError("no node can ever hold it")

    monkeypatch.setattr(controller, "run_stages", run_stages)
    monkeypatch.setattr(UploadsHere, "start", lambda *_: pytest.fail("it uploads"))
    with pytest.raises(ResourcesError):
        run()


def test_a_sweep_is_recorded_before_its_first_stage_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody removes a finished stage that it is about to read."""
    recorded: list[str] = []

    def run_stages(*given: Any, **named: Any) -> Mapping[str, StageState]:
        recorded.extend(stage.key for sweep in recorded_sweeps(store) for stage in sweep.stages)
        return run.ended(*given, **named)

    store = Store(run.store)
    monkeypatch.setattr(running, "_run_stages", run_stages)
    run()
    assert recorded == [stage.key for stage in run.sweep.stages]


def test_data_to_be_fetched_is_named_with_the_stages_that_need_it(run: Run) -> None:
    planned = plan(run.sweep)
    first, *_ = planned.sweep.stages
    blocked = StageState(Status.BLOCKED, "the data must be fetched first")
    planned = dataclasses.replace(planned, states={**planned.states, first.key: blocked})
    with pytest.raises(StoreError, match=f"^{re.escape(first.label)}: the data must be fetched"):
        running.require_unblocked([planned, planned])
