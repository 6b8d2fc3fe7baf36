"""Model FLOPs utilisation: the share of its devices' peak that a training reaches.

It is the tokens per second, over those that the devices would take at their peak, where each token
costs the FLOPs of `flops_per_token` (Chowdhery et al., PaLM, arXiv 2204.02311, App. B, but of
attention only what a causal mask leaves). What a recomputation of activations costs does not count
as work. Packed documents count as one: where they are short, attention is less than that, and the
utilisation too high.
"""

from __future__ import annotations

import torch

from fope_lab.devices import recorded_device
from fope_lab.model import ModelConfig, flops_per_token
from fope_lab.stages.training import TrainingConfig
from fope_lab.sweep.cost import computed_widths


def device_name(device: torch.device) -> str:
    """The name that a stage records of its device: that of the GPU's driver, or cpu."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def why_unknown(device: str) -> str | None:
    """Why a training on this device has no utilisation; None on a CPU, where none is expected."""
    if device == "cpu" or recorded_device(device) is not None:
        return None
    return f"no model FLOPs utilisation: the peak of {device!r} is not in fope_lab/devices.yaml"


def steps_per_second_at_peak(
    spec: TrainingConfig, model: ModelConfig, device: str, workers: int
) -> float | None:
    """The steps per second that so many workers would take at the peak of their devices.

    `device` is the name of device_name. None where the peak is not known: on a CPU, and on a GPU
    that fope_lab/devices.yaml does not list.
    """
    known = recorded_device(device)
    if known is None:
        return None
    flops = sum(
        rows * width * flops_per_token(model, width)
        for width, rows in computed_widths(spec).items()
    )
    return workers * known.peak[spec.train.precision] / flops
