"""The seconds that the controller orders stages by: the plan's forecasts, for every stage."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from sweep_files import BASE, write

from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.forecast import forecast_seconds, without_gaps
from fope_lab.store import Store
from fope_lab.sweep import SweepError, load_sweep, plan


def test_the_controller_gets_the_forecasts_that_the_plan_prints(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path / "sweep.yaml", BASE))
    store = Store(tmp_path / "store")
    planned = estimate_plans([plan(sweep, store)], store).forecasts
    seconds = without_gaps(forecast_seconds(sweep.stages, store))
    assert seconds.keys() == planned.keys()
    known = {key: one.seconds for key, one in planned.items() if one.seconds is not None}
    assert known
    assert {key: seconds[key] for key in known} == known


def test_every_stage_has_seconds_even_where_nothing_is_known(tmp_path: Path) -> None:
    """Stages on GPUs without a GPU that is named or measured, and work unknown until run."""
    content = yaml.safe_load(yaml.safe_dump(BASE))
    for stage in content["stages"].values():
        stage["resources"] = {"gpus": 1}
    sweep = load_sweep(write(tmp_path / "sweep.yaml", content))
    store = Store(tmp_path / "store")
    seconds = without_gaps(forecast_seconds(sweep.stages, store))
    assert seconds.keys() == {stage.key for stage in sweep.stages}
    assert all(value > 0 for value in seconds.values())
    trainings = [stage for stage in sweep.stages if stage.spec.trains]
    slow = without_gaps(forecast_seconds(trainings, store, "rtx-3090"))
    fast = without_gaps(forecast_seconds(trainings, store, "h200"))
    assert all(fast[key] < slow[key] for key in slow)
    with pytest.raises(SweepError, match="did you mean 'h200'"):
        forecast_seconds(sweep.stages, store, "h20")
