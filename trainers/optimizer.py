"""AdamW with decay groups, and learning-rate schedules as pure functions of the step.

Matrices decay (projections, token embedding, head); vectors (norms) do not, nor does anything that
a position embedding learns: 0 is no neutral value for a slope or a coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.sweep.stages import TrainSettings

Schedule = Callable[[float, float], float]
"""(share of the steps after the warm-up that are done, final fraction) → fraction of the rate."""


def cosine(done: float, final: float) -> float:
    """From 1 to `final` along half a cosine (Loshchilov & Hutter, arXiv 1608.03983, Eq. 5)."""
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2


def constant(done: float, final: float) -> float:
    """1 throughout; `final` has no effect."""
    return 1.0


SCHEDULES: Mapping[str, Schedule] = {"cosine": cosine, "constant": constant}


def learning_rate(step: int, steps: int, settings: TrainSettings) -> float:
    """The rate of update number `step`, 0 … steps − 1.

    It grows linearly over the first round(warmup·steps) updates, the last of which uses the full
    rate, and then follows the schedule, whose end falls on the last update.
    """
    warmup_steps = round(settings.warmup * steps)
    if step < warmup_steps:
        return settings.learning_rate * (step + 1) / warmup_steps
    done = (step + 1 - warmup_steps) / (steps - warmup_steps)
    shape = SCHEDULES[settings.schedule](done, settings.final_learning_rate)
    return settings.learning_rate * shape


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: trainable matrices with `weight_decay`, all else without any."""
    embeddings = (module for module in model.modules() if isinstance(module, PositionEmbedding))
    positional = {parameter for embedding in embeddings for parameter in embedding.parameters()}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def decays(parameter: nn.Parameter) -> bool:
        return parameter.ndim >= 2 and parameter not in positional

    return [
        {"params": [p for p in trainable if decays(p)], "weight_decay": weight_decay},
        {"params": [p for p in trainable if not decays(p)], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW over the model's trainable parameters; the loop sets the rate of each step."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return torch.optim.AdamW(
        decay_groups(model, settings.weight_decay),
        lr=settings.learning_rate,
        betas=settings.betas,
        fused=devices <= {"cpu", "cuda"},
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` for every group from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
