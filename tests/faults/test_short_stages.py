"""Two drivers on one store, whose stages take no time: each stage is done once."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run  # type: ignore[attr-defined]

pytestmark = pytest.mark.faults

MEET = '''
import time
from dataclasses import dataclass
from pathlib import Path

import ray

from fope_lab.stages.base import StageConfig
from fope_lab.stages.metric import ResultRecord


@dataclass(frozen=True, kw_only=True)
class Meet(StageConfig, kind="meet"):
    """Do nothing, but not before the slots of two drivers are at work."""

    version = 1
    entry_point = f"{__name__}:meet"

    number: int

    def stands_alone(self) -> bool:
        return True


def meet(config, writer, parents):
    here = Path(__file__).with_name("arrived")
    here.mkdir(exist_ok=True)
    driver = ray.get_runtime_context().gcs_address  # each driver has a Ray of its own
    (here / driver.replace(":", "-")).touch()
    until = time.monotonic() + 120
    while len(list(here.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return ResultRecord().as_json()
'''
STAGES = 150


def test_two_drivers_do_each_short_stage_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    plugin = tmp_path / "meet.py"
    plugin.write_text(MEET)
    numbers = ", ".join(map(str, range(STAGES)))
    sweep = (
        f"name: meet\nplugins: [{plugin}]\nstages:\n  meet: {{kind: meet, number: 0}}\n"
        f"grid:\n  meet.number: [{numbers}]\n"
    )
    run = Run(tmp_path, sweep)
    both = [run.start(), run.start()]
    for process in both:
        run.finish(process)
    assert set(run.attempts().values()) == {1}
    records = [folder.attempts.newest() for folder in run.of_kind("meet")]
    owners = {record.owner for record in records if record is not None}
    assert len(owners) == 2, "one of them had done all before the other began"
    assert all(folder.is_done() for folder in run.of_kind("meet"))
    assert not (tmp_path / ".ray").exists(), "a token of Ray's would be read by other clusters"
