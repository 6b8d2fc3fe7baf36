"""What a stage ran on, as the store keeps it: plans learn from it what such stages take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fope_lab.sweep.devices import CPU, processor
from fope_lab.sweep.work import work_of

if TYPE_CHECKING:
    from fope_lab.sweep.graph import Stage


def ran_on(stage: Stage) -> dict[str, Any]:
    """The device of this process with torch's threads, and the stage's work.

    `device` is None for several workers on GPUs, which this process does not see.
    """
    import torch

    resources = stage.spec.resources
    device: str | None = CPU
    if resources.gpus:
        alone = resources.size == 1 and torch.cuda.is_available()
        device = torch.cuda.get_device_name() if alone else None
    return {
        "device": device,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "workers": resources.size,
        "work": work_of(stage).as_json(),
    }
