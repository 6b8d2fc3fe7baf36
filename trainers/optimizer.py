"""AdamW or Muon with decay groups, learning-rate schedules, and memory that stays between steps.

Matrices decay (projections, token embedding, head). Vectors (biases, norms) do not, and neither
does what a position embedding learns, unless it says so (`Embedding.decays`). Schedules are pure
functions of the step.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.model.decoder import Decoder, position_embeddings
from fope_lab.stages.training import TrainSettings

Schedule = Callable[[int, int, TrainSettings], float]
"""Maps (updates since the warm-up including this one, all updates after the warm-up, settings) to
the fraction of the peak rate."""


def cosine(done: int, total: int, settings: TrainSettings) -> float:
    """Falls from 1 to the final rate along half a cosine.

    Loshchilov & Hutter, arXiv 1608.03983, Eq. 5.
    """
    final = settings.final_learning_rate
    return final + (1 - final) * (1 + math.cos(math.pi * done / total)) / 2


def linear(done: int, total: int, settings: TrainSettings) -> float:
    """Falls linearly from 1 in the first update to the final rate, one update after the last.

    With a final rate of 0 this is the schedule `linear` of Hugging Face's Trainer.
    """
    final = settings.final_learning_rate
    return final + (1 - final) * (total + 1 - done) / total


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
    "linear": linear,
    "wsd": warmup_stable_decay,
    "constant": constant,
}


def learning_rate(step: int, settings: TrainSettings) -> float:
    """The learning rate of update `step`, from 0 to steps − 1.

    It grows linearly over the first round(warmup·steps) updates, the last of which uses the full
    rate. It then follows the schedule.
    """
    warmup = round(settings.warmup * settings.steps)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    shape = SCHEDULES[settings.schedule](step + 1 - warmup, settings.steps - warmup, settings)
    return settings.learning_rate * shape


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: trainable matrices with `weight_decay`, all others without decay."""
    embeddings = position_embeddings(model)
    spared = {p for one in embeddings if not one.definition.decays for p in one.parameters()}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def decays(parameter: nn.Parameter) -> bool:
        return parameter.ndim >= 2 and parameter not in spared

    return [
        {"params": [p for p in trainable if decays(p)], "weight_decay": weight_decay},
        {"params": [p for p in trainable if not decays(p)], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimizer over the model's trainable parameters; the training loop sets the rate of each
    step."""
    return OPTIMIZERS[settings.optimizer](
        model, decay_groups(model, settings.weight_decay), settings
    )


def adamw(
    model: nn.Module, groups: list[dict[str, Any]], settings: TrainSettings
) -> torch.optim.AdamW:
    devices = {parameter.device.type for parameter in model.parameters()}
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=settings.betas, fused=devices <= {"cpu", "cuda"}
    )


class Muon(torch.optim.Optimizer):
    """Muon for the matrices of the layers' projections, AdamW for all else, as one optimizer.

    Both are torch's own. Muon's updates are scaled to the size of AdamW's (Liu et al., "Muon is
    Scalable for LLM Training", arXiv 2502.16982, §2.2), so one learning rate and one weight decay
    are for both. Jordan et al., https://kellerjordan.github.io/posts/muon/: momentum 0.95 as
    Nesterov's. Raises ValueError if there is no such matrix to train.
    """

    def __init__(
        self, model: nn.Module, groups: list[dict[str, Any]], settings: TrainSettings
    ) -> None:
        matrices = projections(model)
        if not matrices:
            raise ValueError("optimizer muon: the model has no matrix to train in its layers")
        rest = [{**g, "params": [p for p in g["params"] if p not in matrices]} for g in groups]
        muon = torch.optim.Muon(
            [p for group in groups for p in group["params"] if p in matrices],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self._parts = muon, adamw(model, rest, settings)
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let both parts work on the groups and the state of the whole."""
        first, *others = self.param_groups
        for part, groups in zip(self._parts, ([first], others), strict=True):
            part.param_groups, part.state = groups, self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self._parts:
            part.step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()


OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": Muon}


def projections(model: nn.Module) -> set[Tensor]:
    """The trainable matrices of the layers' projections, without those of position embeddings."""
    [decoder] = (module for module in model.modules() if isinstance(module, Decoder))
    positional: set[Tensor] = {p for one in position_embeddings(model) for p in one.parameters()}
    linear = (one for one in decoder.layers.modules() if isinstance(one, nn.Linear))
    return {one.weight for one in linear if one.weight.requires_grad} - positional


TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""The parameters of mallopt(3): how many free bytes at its end the heap keeps, from which size on
blocks are mapped outside it, and how many of them may be."""
KEEPING = {TRIM_THRESHOLD: -1, MMAP_MAX: 0}
"""All that is freed stays in the heap."""
RETURNING = {TRIM_THRESHOLD: 2**26, MMAP_THRESHOLD: 2**25, MMAP_MAX: 2**16}
"""What malloc does by default, where its two thresholds have grown to their limits."""


@contextlib.contextmanager
def kept_memory(device: torch.device) -> Iterator[None]:
    """Keep freed memory for the process within this context, on a CPU with glibc.

    At the end, what is free goes back to the system, unless it lies in a gap in the heap.
    """
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" and device.type == "cpu" else None
    if not hasattr(library, "gnu_get_libc_version"):
        yield
        return
    for parameter, value in KEEPING.items():
        library.mallopt(parameter, value)
    try:
        yield
    finally:
        for parameter, value in RETURNING.items():
            library.mallopt(parameter, value)
        library.malloc_trim(0)
