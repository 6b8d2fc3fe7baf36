"""AdamW with decay groups, and learning-rate schedules as pure functions of the step.

Matrices decay (projections, token embedding, head). Vectors (biases, norms) do not, and neither
does what a position embedding learns, unless it says so (`Embedding.decays`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.stages import TrainSettings

Schedule = Callable[[int, int, TrainSettings], float]
"""Maps (updates since the warm-up including this one, all updates after the warm-up, settings) to
the fraction of the peak rate."""


def cosine(done: int, total: int, settings: TrainSettings) -> float:
    """Falls from 1 to the final rate along half a cosine.

    Loshchilov & Hutter, arXiv 1608.03983, Eq. 5.
    """
    final = settings.final_learning_rate
    return final + (1 - final) * (1 + math.cos(math.pi * done / total)) / 2


def warmup_stable_decay(done: int, total: int, settings: TrainSettings) -> float:
    """Stays at 1, then falls linearly to the final rate over the last round(decay·steps) updates.

    Hu et al., "MiniCPM", arXiv 2404.06395, §4.2, with the linear cooldown of Hägele et al., arXiv
    2405.18392.
    """
    assert settings.decay is not None  # filled in where the schedule is this one
    decaying = min(round(settings.decay * settings.steps), total)
    left = total - done
    if left >= decaying:
        return 1.0
    final = settings.final_learning_rate
    return final + (1 - final) * left / decaying


def constant(done: int, total: int, settings: TrainSettings) -> float:
    """Stays at 1; the final rate has no effect."""
    return 1.0


SCHEDULES: Mapping[str, Schedule] = {
    "cosine": cosine,
    "wsd": warmup_stable_decay,
    "constant": constant,
}


def learning_rate(step: int, settings: TrainSettings) -> float:
    """The learning rate of update `step`, from 0 to steps − 1.

    It grows linearly over the first round(warmup·steps) updates, the last of which uses the full
    rate. It then follows the schedule, which ends at the last update.
    """
    warmup = round(settings.warmup * settings.steps)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    shape = SCHEDULES[settings.schedule](step + 1 - warmup, settings.steps - warmup, settings)
    return settings.learning_rate * shape


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: trainable matrices with `weight_decay`, all others without decay."""
    embeddings = [module for module in model.modules() if isinstance(module, PositionEmbedding)]
    spared = {p for one in embeddings if not one.definition.decays for p in one.parameters()}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def decays(parameter: nn.Parameter) -> bool:
        return parameter.ndim >= 2 and parameter not in spared

    return [
        {"params": [p for p in trainable if decays(p)], "weight_decay": weight_decay},
        {"params": [p for p in trainable if not decays(p)], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW over the model's trainable parameters; the training loop sets the rate of each step."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return torch.optim.AdamW(
        decay_groups(model, settings.weight_decay),
        lr=settings.learning_rate,
        betas=settings.betas,
        fused=devices <= {"cpu", "cuda"},
    )
