"""What a stage runs on, and how much of it: its device, the machine's load, FLOPs utilisation.

Model FLOPs utilisation is the tokens per second over those at the devices' peak, where each token
costs the FLOPs of `flops_per_token` (Chowdhery et al., PaLM, arXiv 2204.02311, App. B, but of
attention only what a causal mask leaves), and recomputed activations nothing. Packed documents
count as one: where they are short, the utilisation is too high.

Importing this does not import torch, so that a driver starts without it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from fope_lab.config.devices import recorded_device
from fope_lab.config.processor import processor
from fope_lab.embeddings import Embedding
from fope_lab.model import ModelConfig, flops_per_token
from fope_lab.stages.base import Resources
from fope_lab.stages.training import TrainingConfig
from fope_lab.stages.widths import computed_widths

if TYPE_CHECKING:
    import torch

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


def device_name(device: torch.device) -> str:
    """The name that a stage records of its device: that of the GPU's driver, or cpu."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def why_unknown(device: str) -> str | None:
    """Why a training on this device has no utilisation; None on a CPU, where none is expected."""
    if device == "cpu" or recorded_device(device) is not None:
        return None
    where = "fope_lab/config/devices.yaml"
    return f"no model FLOPs utilisation: the peak of {device!r} is not in {where}"


def steps_per_second_at_peak(
    spec: TrainingConfig, model: ModelConfig, embedding: Embedding, device: str, workers: int
) -> float | None:
    """The steps per second of so many workers at the peak of their devices; None if unknown.

    `device` is the name of device_name.
    """
    known = recorded_device(device)
    if known is None:
        return None
    adapter = spec.train.adapter
    adapted = None if adapter is None else adapter.parameters(model)
    flops = sum(
        rows * width * flops_per_token(model, width, embedding, adapted)
        for width, rows in computed_widths(spec).items()
    )
    return workers * known.peak[spec.train.precision] / flops


@dataclass(frozen=True)
class Execution:
    """The device (its driver's name for it), the processor and torch's threads of worker 0, and the
    number of workers, which is smaller than planned where a stage lost some and went on."""

    device: str
    processor: str
    threads: int
    workers: int = 1


def execution_here(resources: Resources, workers: int = 1) -> Execution:
    """What the work of this process, one of so many workers, runs on."""
    import torch

    on_gpu = resources.gpus > 0 and torch.cuda.is_available()
    return Execution(
        device=device_name(torch.device("cuda" if on_gpu else "cpu")),
        processor=processor(),
        threads=torch.get_num_threads(),
        workers=workers,
    )
