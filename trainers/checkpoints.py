"""What a training stage saves, so that going on from it changes no bit of the result.

A checkpoint directory holds the model (fope_lab/model/checkpoint.py), training.json with the
progress, and, except in a stage's final checkpoint, what only the resumed loop needs: training.pt
with the optimizer's state and the random-number generators, and best.safetensors with the weights
that had the least validation loss, if these are to be kept and the model has moved on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fope_lab.model.checkpoint import WEIGHTS

PROGRESS = "training.json"
STATE = "training.pt"
BEST = "best.safetensors"


@dataclass
class Progress:
    """How far training is: steps done, the loss of each, the seconds that they took, and the
    validation losses with the steps after which they were measured."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    validation_steps: list[int] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)

    @property
    def best_step(self) -> int | None:
        """After which step the validation loss was least (the first, of equals), if any was."""
        pairs = zip(self.validation_losses, self.validation_steps, strict=True)
        return min(pairs, default=(0.0, None))[1]


@dataclass(frozen=True)
class ResumeState:
    """What only a resumed loop needs; all of it whole, however many workers there are."""

    optimizer: Mapping[str, Any]
    best: Path | None
    """The file of the best weights so far, unless they are the model's own."""


def write_progress(directory: Path, progress: Progress) -> None:
    """Save the progress in `directory`."""
    (directory / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")


def read_progress(directory: Path) -> Progress:
    """The progress that `write_progress` saved in `directory`."""
    return Progress(**json.loads((directory / PROGRESS).read_text(encoding="utf-8")))


def write_state(directory: Path, state: ResumeState, device: torch.device) -> None:
    """Save `state` and this process's random-number generators in `directory`."""
    if state.best is not None:
        shutil.copyfile(state.best, directory / BEST)
    with (directory / STATE).open("wb") as file:  # a full disk is then an OSError that says so
        torch.save({"optimizer": state.optimizer, "random": _random_state(device)}, file)


def restore_state(directory: Path, device: torch.device) -> Mapping[str, Any]:
    """Put the random-number generators where they were; the saved state of the optimizer.

    The model's weights are the caller's: it reads them from `directory` when it builds the model.
    All workers draw the same random numbers, so that those of one are those of all.
    """
    state = torch.load(directory / STATE, map_location="cpu", weights_only=True)
    torch.set_rng_state(state["random"]["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["random"]["cuda"], device)
    return dict(state["optimizer"])


def best_weights(directory: Path) -> Path:
    """The file of the best weights in a checkpoint to go on from: its own, or the model's."""
    own = directory / BEST
    return own if own.exists() else directory / WEIGHTS


def _random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state
