"""What a training stage saves, so that going on from it changes no bit of the result.

A checkpoint directory holds the model (fope_lab/model/checkpoint.py), training.json with the
progress, and, except in a stage's final checkpoint, training.pt with what only the resumed loop
needs: the optimizer's state and the random-number generators.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

PROGRESS = "training.json"
STATE = "training.pt"


@dataclass
class Progress:
    """How far training is: steps done, the loss of each, and the seconds that they took."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def write_checkpoint(
    directory: Path,
    progress: Progress,
    write_model: Callable[[Path], None],
    optimizer: torch.optim.Optimizer | None,
    device: torch.device,
) -> None:
    """Fill `directory`. Without an optimizer it is a final checkpoint, not one to train on from."""
    write_model(directory)
    (directory / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")
    if optimizer is not None:
        state = {"optimizer": optimizer.state_dict(), "random": _random_state(device)}
        torch.save(state, directory / STATE)


def read_progress(directory: Path) -> Progress:
    """The progress that `write_checkpoint` saved in `directory`."""
    return Progress(**json.loads((directory / PROGRESS).read_text(encoding="utf-8")))


def restore_state(directory: Path, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Put the optimizer and the random-number generators where they were.

    The model's weights are the caller's: it reads them from `directory` when it builds the model.
    """
    state = torch.load(directory / STATE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"]["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["random"]["cuda"], device)


def _random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state
