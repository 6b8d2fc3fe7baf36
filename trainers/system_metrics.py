"""What a training stage uses of its machine, under the names that MLflow gives to such metrics.

    system/cpu_utilization_percentage           of all processors of the machine, since the last row
    system/system_memory_usage_megabytes        of the machine, and as a percentage
    system/process_cpu_utilization_percentage   of this process; 100 is one processor
    system/process_memory_usage_megabytes       the resident memory of this process
    system/gpu_0_memory_usage_megabytes         of the GPU that this process trains on, and as a
                                                percentage
    system/gpu_0_utilization_percentage         and system/gpu_0_power_usage_watts: only where
                                                nvidia-ml-py is installed

They are rows of the store beside those of the training, and no part of a result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

FIRST_SECONDS, SECONDS = 1.0, 10.0
"""How long after the start the first row is due, and each of the others after the one before."""
MEGABYTE = 1e6
"""The number of bytes in a megabyte: MLflow's metrics of memory count in millions, not in 2^20."""


class SystemMonitor:
    """Measures this process and its machine; nothing is measured between two calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._process = clock, psutil.Process()
        self._due = clock() + FIRST_SECONDS
        psutil.cpu_percent()  # the first call only begins the interval of the next one
        self._process.cpu_percent()

    def measure_if_due(self) -> dict[str, float]:
        """The values by their names; empty if the last ones are younger than SECONDS."""
        now = self._clock()
        if now < self._due:
            return {}
        self._due = now + SECONDS
        try:
            values = {**self._processor_and_memory(), **_gpu()}
        except (psutil.Error, OSError):  # a container may hide them, and training goes on
            return {}
        return {f"system/{name}": round(value, 1) for name, value in values.items()}

    def _processor_and_memory(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": memory.used / memory.total * 100,
            "process_cpu_utilization_percentage": self._process.cpu_percent(),
            "process_memory_usage_megabytes": self._process.memory_info().rss / MEGABYTE,
        }


def _gpu() -> dict[str, float]:
    """The values of the GPU that this process uses; empty if it uses none."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    device = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(device)
    values = {
        "memory_usage_megabytes": (total - free) / MEGABYTE,
        "memory_usage_percentage": (total - free) / total * 100,
    }
    with contextlib.suppress(ModuleNotFoundError, RuntimeError):  # without NVIDIA's library
        values["utilization_percentage"] = float(torch.cuda.utilization(device))
        values["power_usage_watts"] = torch.cuda.power_draw(device) / 1000
    return {f"gpu_{device}_{name}": value for name, value in values.items()}
