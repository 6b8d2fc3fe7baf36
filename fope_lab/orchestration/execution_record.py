"""The record of what a stage ran on, from which plans learn how long such stages take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.planning.devices import CPU, processor
from fope_lab.planning.workload import workload_of
from fope_lab.sweep.graph import Stage


def execution_record(stage: Stage, result: Mapping[str, Any]) -> dict[str, Any]:
    """The device, torch's threads and the workload of a stage that has just run in this process.

    This process does not see the GPUs of several workers: a training's `result` names theirs.
    """
    import torch

    resources = stage.spec.resources
    device: str | None = CPU
    if resources.gpus:
        alone = resources.size == 1 and torch.cuda.is_available()
        device = torch.cuda.get_device_name() if alone else result["recorded"].get("device")
    return {
        "device": device,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "workers": resources.size,
        "work": workload_of(stage).as_json(),
    }
