"""What the work of a stage ran on, as seen by the processes that did it."""

from __future__ import annotations

from dataclasses import dataclass

from fope_lab.processor import processor
from fope_lab.stages import Resources


@dataclass(frozen=True)
class Execution:
    """The device, the processor and torch's threads of worker 0, and the number of workers.

    `device` is the name that the driver gives the GPU, or CPU. `workers` is smaller than planned
    where a stage lost some and went on.
    """

    device: str
    processor: str
    threads: int
    workers: int = 1


def execution_here(resources: Resources, workers: int = 1) -> Execution:
    """What the work of this process, one of so many workers, runs on."""
    import torch

    from trainers.utilisation import device_name

    on_gpu = resources.gpus > 0 and torch.cuda.is_available()
    return Execution(
        device=device_name(torch.device("cuda" if on_gpu else "cpu")),
        processor=processor(),
        threads=torch.get_num_threads(),
        workers=workers,
    )
