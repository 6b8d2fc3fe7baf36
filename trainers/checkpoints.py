"""What a training stage saves, so that resuming from it changes no bit of the result.

A checkpoint folder holds the model (fope_lab/model/checkpoint.py) and training.json with the
record. Unless it is the stage's final checkpoint, it also holds what the resumed loop needs:
training.pt with the optimizer's state and the random-number generators, and best.safetensors with
the weights that the stage selects so far, if the model has moved on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fope_lab.model.checkpoint import WEIGHTS
from fope_lab.stages.training import ROW_ACCURACY, TOKEN_ACCURACY, TRAINING_RECORD

STATE = "training.pt"
BEST = "best.safetensors"


@dataclass
class TrainingRecord:
    """A training so far: steps done, the loss of each (nats) and the seconds that they took.

    Of these `seconds`, `data_seconds` passed while the loop waited for a batch (a GPU may still
    compute the step before in that time), `checkpoint_seconds` while it wrote checkpoints, and
    `validation_seconds` in validations. `validation_losses` were measured after `validation_steps`,
    and so were `validation_accuracies` and `validation_token_accuracies` if the training stops at
    one or selects by one. `peak_steps` are the steps that its devices would have taken in `seconds`
    at their peak, None if that is not known of all of them.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    data_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    validation_seconds: float = 0.0
    peak_steps: float | None = None
    validation_steps: list[int] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_accuracies: list[float] = field(default_factory=list)
    validation_token_accuracies: list[float] = field(default_factory=list)

    def accuracies(self, name: str) -> list[float]:
        """The accuracies with this name, in the order of the validations."""
        return {
            ROW_ACCURACY: self.validation_accuracies,
            TOKEN_ACCURACY: self.validation_token_accuracies,
        }[name]

    def selected_step(self, select: str) -> int | None:
        """The validated step that `train.select` chooses, the first of equals.

        It is None before any validation, and for `last`, which compares none.
        """
        scores = SCORES[select](self)
        return self.validation_steps[scores.index(max(scores))] if scores else None


SCORES: Mapping[str, Callable[[TrainingRecord], Sequence[float]]] = {
    "last": lambda record: (),
    "best": lambda record: [-loss for loss in record.validation_losses],
    "most-accurate": lambda record: record.validation_token_accuracies,
}
"""The score of each validation by `train.select`, which chooses the highest."""


@dataclass(frozen=True)
class ResumeState:
    """The state that only a resumed loop needs. It is whole, however many workers there are."""

    optimizer: Mapping[str, Any]
    best: Path | None
    """The file with the best weights so far, or None if those are the model's own."""


def write_record(directory: Path, record: TrainingRecord) -> None:
    """Save the record of a training in `directory`."""
    (directory / TRAINING_RECORD).write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_record(directory: Path) -> TrainingRecord:
    """Read the record that `write_record` saved in `directory`."""
    return TrainingRecord(**json.loads((directory / TRAINING_RECORD).read_text(encoding="utf-8")))


def write_state(directory: Path, state: ResumeState, device: torch.device) -> None:
    """Save `state` and this process's random-number generators in `directory`."""
    if state.best is not None:
        shutil.copyfile(state.best, directory / BEST)
    random = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(device)
    with (directory / STATE).open("wb") as file:  # so that a full disk raises an OSError
        torch.save({"optimizer": state.optimizer, "random": random}, file)


def restore_state(directory: Path, device: torch.device) -> Mapping[str, Any]:
    """Restore the random-number generators; returns the saved state of the optimizer.

    The caller reads the model's weights from `directory` itself. All workers draw the same random
    numbers, so the generators of one worker serve all. Where an earlier attempt computed on a CPU,
    a GPU keeps the generator that it has.
    """
    state = torch.load(directory / STATE, map_location="cpu", weights_only=True)
    torch.set_rng_state(state["random"]["cpu"])
    if device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"], device)
    return dict(state["optimizer"])


def best_weights(directory: Path) -> Path:
    """The file with the best weights in a checkpoint to resume from."""
    own = directory / BEST
    return own if own.exists() else directory / WEIGHTS
