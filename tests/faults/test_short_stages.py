"""Two drivers on one store, whose stages take no time: each stage is done once."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run  # type: ignore[attr-defined]

pytestmark = pytest.mark.faults

REST = Path(__file__).parents[2] / "benchmarks" / "controller.py"
STAGES = 150
SWEEP = f"""
name: rest
plugins: [{REST}]
stages:
  rest: {{kind: rest, seconds: 0.0, number: 0}}
grid:
  rest.number: [{", ".join(map(str, range(STAGES)))}]
"""


def test_two_drivers_do_each_short_stage_once(tmp_path: Path) -> None:
    run = Run(tmp_path, SWEEP)
    both = [run.start(), run.start()]
    for process in both:
        run.finish(process)
    assert set(run.attempts().values()) == {1}
    records = [folder.attempts.newest() for folder in run.of_kind("rest")]
    owners = {record.owner for record in records if record is not None}
    assert len(owners) == 2, "one of them had done all before the other began"
    assert all(folder.is_done() for folder in run.of_kind("rest"))
