"""The training loop of every kind of training stage: pretrain, extend and finetune.

The batch of a step is a function of the step, so a resumed run needs no data state; with the
optimizer's and the random state from the checkpoint it repeats the uninterrupted run bit for bit
(on the CPU; CUDA kernels are not all deterministic).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.model.decoder import Decoder
from fope_lab.stages import Resources, TrainSettings
from fope_lab.store import Attempt, Checkpoint
from trainers.checkpoints import (
    Progress,
    ResumeState,
    best_weights,
    read_progress,
    restore_state,
    write_progress,
    write_state,
)
from trainers.gradient_accumulation import StepRunner
from trainers.optimizer import build_optimizer, learning_rate, set_learning_rate
from trainers.worker_group import WorkerGroup

Batches = Callable[[int], Batch]
"""This worker's share of the batch of update number `step`, from 0; always the same."""
HeldOutBatches = Callable[[], Iterable[Batch]]
"""This worker's share of the held-out data; always the same."""
WriteModel = Callable[[Path, Mapping[str, Tensor]], None]
"""Writes a model with these weights (see `Decoder.untied_state`) to a directory."""

FINAL_SHARE = 20
"""The final loss is the mean over the last 1/20 of the steps: a single step's is mostly noise."""
VALIDATION_SEED = 0
"""Of the positions that some embeddings draw: the same for every validation."""


class NonFiniteError(RuntimeError):
    """The loss or the gradient is no longer a number, so training stopped."""


def _device_name(device: torch.device) -> str:
    """What a plan knows it by."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def choose_device(resources: Resources) -> torch.device:
    """The GPU that the stage reserved, or the CPU.

    Raises RuntimeError if a GPU is asked for and none can be seen: a stage meant for a GPU would
    take weeks on the CPU.
    """
    if resources.gpus == 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"the stage's resources ask for {resources.gpus:g} GPU, but this process sees none"
        )
    return torch.device("cuda")


def train(
    model: Decoder,
    batches: Batches,
    settings: TrainSettings,
    attempt: Attempt,
    write_model: WriteModel,
    *,
    seed: int,
    device: torch.device,
    held_out: HeldOutBatches | None = None,
    workers: WorkerGroup | None = None,
) -> dict[str, Any]:
    """Train `model`, which is on `device`, to the end and save the stage's final checkpoint.

    If the attempt goes on from a checkpoint, the model must hold that checkpoint's weights.
    `held_out` is needed where the settings have `validate_every`. All workers of a group call this
    alike, and the attempt of the first alone writes. The global random state is left as it was.
    Returns what result.json says about the training. Raises NonFiniteError.
    """
    cuda_devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices):
        torch.manual_seed(seed)
        run = _Run(
            model, settings, attempt, write_model, device, held_out, workers or WorkerGroup()
        )
        while run.progress.step < settings.steps:
            run.update(batches(run.progress.step))
    return run.summary()


@dataclass
class _Run:
    """One attempt's pass through the loop."""

    model: Decoder
    settings: TrainSettings
    attempt: Attempt
    write_model: WriteModel
    device: torch.device
    held_out: HeldOutBatches | None
    workers: WorkerGroup
    progress: Progress = field(init=False)
    last_checkpoint: Checkpoint | None = field(init=False)

    def __post_init__(self) -> None:
        self.model.train()
        self.runner = StepRunner(self.model, self.settings, self.device, self.workers)
        self.optimizer = build_optimizer(self.runner.module, self.settings)
        self.last_checkpoint = self.attempt.resumed_from
        self.progress = Progress()
        if self.last_checkpoint is not None:
            self.progress = read_progress(self.last_checkpoint.path)
            if self.progress.step < self.settings.steps:
                state = restore_state(self.last_checkpoint.path, self.device)
                self.workers.load_optimizer_state(self.model, self.optimizer, state)
        # Loss and gradient norm of the latest steps, still on the device: reading them there and
        # then would make every step wait for the GPU.
        self.unread: list[Tensor] = []
        self.row_step = self.progress.step
        self.row_time = time.monotonic()
        self.seconds_before = self.progress.seconds
        self.started = self.row_time

    def update(self, batch: Batch) -> None:
        """One optimizer step, and whatever is due after it."""
        settings = self.settings
        rate = learning_rate(self.progress.step, settings)
        set_learning_rate(self.optimizer, rate)
        loss = self.runner.backward(batch)
        norm = self.workers.clip(self.runner.module, settings.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.unread.append(torch.stack((loss, norm.detach())))
        self.progress.step = step = self.progress.step + 1

        final = step == settings.steps
        row_due = final or step % settings.log_every == 0
        validation_due = settings.validate_every is not None and (
            final or step % settings.validate_every == 0
        )
        checkpoint_due = final or step % settings.checkpoint_every == 0
        if row_due or validation_due or checkpoint_due:
            norm_value = self._read()
        if row_due:
            self._log(rate, norm_value)
        if validation_due:
            self._validate()
            # The best weights are those of a checkpoint, so that they outlive this process.
            checkpoint_due |= settings.select == "best" and self.progress.best_step == step
        if checkpoint_due:
            self._save(final)

    def summary(self) -> dict[str, Any]:
        """What result.json says about the training."""
        settings, progress = self.settings, self.progress
        last = max(settings.steps // FINAL_SHARE, 1)
        tokens = settings.steps * settings.batch_tokens
        return {
            "loss": statistics.fmean(progress.losses[-last:]),
            "steps": settings.steps,
            "tokens": tokens,
            "seconds": progress.seconds,
            "tokens_per_second": tokens / progress.seconds,
            "device": _device_name(self.device),
            **self._selected(),
        }

    def _selected(self) -> dict[str, Any]:
        """Which weights the stage ends with, if there are validation losses to tell them by."""
        progress = self.progress
        if self.settings.validate_every is None:
            return {}
        best = self.settings.select == "best"
        step = progress.best_step if best else progress.step
        assert step is not None  # the last step is always validated
        loss = progress.validation_losses[progress.validation_steps.index(step)]
        # The least of several measured losses is less than what other data would give.
        return {
            "selected_step": step,
            "validation_loss": loss,
            "least_validation_loss": min(progress.validation_losses),
            "optimistic": best,
        }

    def _read(self) -> float:
        """Move the unread losses into the progress; the gradient norm of the latest step."""
        values = torch.stack(self.unread).tolist()
        self.unread.clear()
        for loss, norm in values:
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise self._not_finite(loss, norm)
            self.progress.losses.append(loss)
        return float(norm)

    def _log(self, rate: float, norm: float) -> None:
        step, now = self.progress.step, time.monotonic()
        steps_per_second = (step - self.row_step) / max(now - self.row_time, 1e-9)
        values = {
            "loss": statistics.fmean(self.progress.losses[self._row_start(step) :]),
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens_per_second": steps_per_second * self.settings.batch_tokens,
        }
        self.row_step, self.row_time = step, now
        self.attempt.log(step, values)
        self.attempt.progress(
            step,
            self.settings.steps,
            loss=values["loss"],
            tokens_per_second=values["tokens_per_second"],
        )

    def _row_start(self, step: int) -> int:
        """The step after which the row of `step` begins, whichever attempt took those steps."""
        return (step - 1) // self.settings.log_every * self.settings.log_every

    def _validate(self) -> None:
        """Measure the loss on held-out data, which leaves the training as it was."""
        assert self.held_out is not None
        started = time.monotonic()
        step = self.progress.step
        cuda_devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda_devices):  # some embeddings draw positions
            torch.manual_seed(VALIDATION_SEED)
            loss = self.runner.loss(self.held_out())
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"the validation loss is {loss} after step {step} of {self.settings.steps};"
                f" {self._kept()}"
            )
        self.progress.validation_steps.append(step)
        self.progress.validation_losses.append(loss)
        values = {"validation_loss": loss}
        if step == self.settings.steps:
            values["least_validation_loss"] = min(self.progress.validation_losses)
        self.attempt.log(step, values)
        self.row_time += time.monotonic() - started  # tokens a second are those of training

    def _save(self, final: bool) -> None:
        progress, device = self.progress, self.device
        progress.seconds = self.seconds_before + time.monotonic() - self.started
        earlier = self.settings.select == "best" and progress.best_step not in (None, progress.step)
        best = best_weights(self.last_checkpoint.path) if earlier and self.last_checkpoint else None
        weights, state = None, None
        # What all workers together hold, they gather together, although one of them writes it.
        if not (final and earlier):
            weights = self.workers.weights(self.model)
        if not final:
            optimizer = self.workers.optimizer_state(self.model, self.optimizer)
            state = ResumeState(optimizer, best)

        def write(directory: Path) -> None:
            self.write_model(directory, load_file(best) if weights is None else weights)
            write_progress(directory, progress)
            if state is not None:
                write_state(directory, state, device)

        self.last_checkpoint = self.attempt.save_checkpoint(progress.step, write)

    def _not_finite(self, loss: float, norm: float) -> NonFiniteError:
        step = len(self.progress.losses)
        found = f"loss is {loss}" if not math.isfinite(loss) else f"gradient's norm is {norm}"
        return NonFiniteError(
            f"the {found} at step {step + 1} of {self.settings.steps} (batch {step},"
            f" learning rate {learning_rate(step, self.settings):.3g}); {self._kept()}."
            " Try a lower train.learning_rate or a longer train.warmup."
        )

    def _kept(self) -> str:
        """What training could go on from."""
        if self.last_checkpoint is None:
            return "there is no checkpoint before it"
        return (
            f"the last good checkpoint is {self.last_checkpoint.path}"
            f" after step {self.last_checkpoint.step}"
        )
