"""The device that a stage computes on."""

from __future__ import annotations

import torch


def choose_device(gpus: float) -> torch.device:
    """The GPU that a stage reserved, or the CPU if it reserved none.

    Raises RuntimeError if it reserved a GPU and this process sees none: a stage that is meant for a
    GPU would take weeks on the CPU.
    """
    if gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        why = "this process sees none"
        if torch.version.cuda is None and torch.version.hip is None:
            why = f"torch {torch.__version__} is built for CPUs"
        raise RuntimeError(f"the stage's resources ask for {gpus:g} GPU, but {why}")
    return torch.device("cuda")
