"""The end of a run: whatever goes wrong with its report, the failures of stages are printed."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fope_lab.orchestration import run_sweeps as running
from fope_lab.store import StageState, Status
from fope_lab.sweep import load_sweep
from fope_lab.tracking import Tracker

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


@pytest.mark.parametrize(
    ("owner", "name"),
    [(running, "report_of_plan"), (running, "print_report"), (Tracker, "project")],
)
def test_a_broken_report_hides_no_failure(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    sweep = load_sweep(path)
    states: Mapping[str, StageState] = {
        stage.key: StageState(Status.FAILED, f"{stage.label} went wrong")
        if stage.kind == "pretrain"
        else StageState(Status.DONE)
        for stage in sweep.stages
    }
    failed = {key: state for key, state in states.items() if not state.is_done}
    outcome = SimpleNamespace(interrupted=False, not_done=failed)
    monkeypatch.setattr(running, "_run_stages", lambda *_: outcome)
    monkeypatch.setattr(owner, name, broken)
    output = io.StringIO()
    with pytest.raises(OSError, match="no space left"):
        running.run_sweeps(
            [sweep],
            store=str(tmp_path / "store"),
            tracking_uri=None,
            address="local",
            console=Console(file=output, width=200),
        )
    assert len(failed) == 2
    for state in failed.values():
        assert state.reason in output.getvalue()
