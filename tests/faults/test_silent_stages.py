"""A stage that hangs, and tells nothing any more: its timeout ends it, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import MODEL, Run  # type: ignore[attr-defined]

from fope_lab.store.state import Status

pytestmark = pytest.mark.faults

PLUGIN = '''
"""An evaluation that hangs after its first step, with a lock that nothing can interrupt."""
import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.stages.metric import Measurement, Metric


@dataclass(frozen=True, kw_only=True)
class Hang(ModelEvaluation, kind="hang"):
    """Hang for good if it is asked to."""

    number: int

    def metrics(self) -> Iterable[Metric]:
        yield Metric(name="number", short_name="number", better=None, unit="number")

    def run(self, context):
        context.report_progress(1, 3)
        if self.number == 0:
            ctypes.PyDLL(None).sleep(3600)
        context.log(Measurement(name="number", value=self.number))
        return {}
'''
SWEEP = f"""
name: hangs
plugins: [./hang.py]
seeds: [0]
stages:
{MODEL}    train: {{tokens: 2048, batch_tokens: 512, learning_rate: 1e-3}}
  hang: {{kind: hang, from: pretrain, number: 0, timeout: 0.1, resources: {{cpus: 2}}}}
grid:
  hang.number: [0, 1, 2]
"""


def test_a_stage_that_hangs_is_ended_and_the_others_are_done(tmp_path: Path) -> None:
    """It holds Python's lock, so that no thread of its own process could end it."""
    (tmp_path / "hang.py").write_text(PLUGIN)
    run = Run(tmp_path, SWEEP)
    process = run.start()
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 1, output
    text = "failed hang[number=0,seed=0]: no progress for 0.1 min, its timeout"
    assert text in " ".join(output.split()), output
    found = [folder.state() for folder in run.of_kind("hang")]
    assert [state.status for state in found] == [Status.FAILED, Status.DONE, Status.DONE]
    assert found[0].reason == "no progress for 0.1 min, its timeout"
    assert found[0].attempt is not None
    assert found[0].attempt.token == 1
