"""The training loop of every kind of training stage: pretrain, extend and finetune.

The batch of a step is a function of the step, so a resumed run needs no data state; with the
optimizer's and the random state from the checkpoint it repeats the uninterrupted run bit for bit
(on the CPU; CUDA kernels are not all deterministic).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fope_lab.data.mixture import IGNORED, Batch
from fope_lab.store import Attempt, Checkpoint
from fope_lab.sweep.stages import Resources, TrainSettings
from trainers.checkpoint import Progress, read_progress, restore_state, write_checkpoint
from trainers.optimizer import build_optimizer, learning_rate, set_learning_rate

FINAL_SHARE = 20
"""The final loss is the mean over the last 1/20 of the steps: a single step's is mostly noise."""


class NonFiniteError(RuntimeError):
    """The loss or the gradient is no longer a number, so training stopped."""


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


def batch_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy in nats over the labels that count, float32."""
    logits = model(batch.input_ids).logits
    return nn.functional.cross_entropy(
        logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED
    )


def train(
    model: nn.Module,
    batches: Callable[[int], Batch],
    settings: TrainSettings,
    attempt: Attempt,
    write_model: Callable[[Path], None],
    *,
    seed: int,
    device: torch.device,
) -> dict[str, Any]:
    """Train `model`, which is on `device`, to the end and save the stage's final checkpoint.

    `batches(step)` is the batch of update number `step`, from 0, and the same whenever it is asked
    for. If the attempt goes on from a
    checkpoint, the model must hold that checkpoint's weights. The global random state is left as
    it was. Returns what result.json says about the training. Raises NonFiniteError.
    """
    cuda_devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices):
        torch.manual_seed(seed)
        run = _Run(model, settings, attempt, write_model, device)
        while run.progress.step < settings.steps:
            run.update(batches(run.progress.step))
    return run.summary()


@dataclass
class _Run:
    """One attempt's pass through the loop."""

    model: nn.Module
    settings: TrainSettings
    attempt: Attempt
    write_model: Callable[[Path], None]
    device: torch.device
    progress: Progress = field(init=False)
    last_checkpoint: Checkpoint | None = field(init=False)

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = build_optimizer(self.model, self.settings)
        self.last_checkpoint = self.attempt.resumed_from
        self.progress = Progress()
        if self.last_checkpoint is not None:
            self.progress = read_progress(self.last_checkpoint.path)
            if self.progress.step < self.settings.steps:
                restore_state(self.last_checkpoint.path, self.optimizer, self.device)
        # Loss and gradient norm of the latest steps, still on the device: reading them there and
        # then would make every step wait for the GPU.
        self.unread: list[Tensor] = []
        self.row_step = self.progress.step
        self.row_time = time.monotonic()
        self.seconds_before = self.progress.seconds
        self.started = self.row_time

    def update(self, batch: Batch) -> None:
        """One optimizer step, and whatever is due after it."""
        settings, step = self.settings, self.progress.step
        rate = learning_rate(step, settings.steps, settings)
        set_learning_rate(self.optimizer, rate)
        batch = Batch(batch.input_ids.to(self.device), batch.labels.to(self.device))
        loss = batch_loss(self.model, batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.unread.append(torch.stack((loss.detach(), norm.detach())))
        self.progress.step = step = step + 1

        final = step == settings.steps
        row_due = final or step % settings.log_every == 0
        checkpoint_due = final or step % settings.checkpoint_every == 0
        if row_due or checkpoint_due:
            norm_value = self._read()
        if row_due:
            self._log(rate, norm_value)
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

    def _save(self, final: bool) -> None:
        self.progress.seconds = self.seconds_before + time.monotonic() - self.started
        optimizer = None if final else self.optimizer

        def write(directory: Path) -> None:
            write_checkpoint(directory, self.progress, self.write_model, optimizer, self.device)

        self.last_checkpoint = self.attempt.save_checkpoint(self.progress.step, write)

    def _not_finite(self, loss: float, norm: float) -> NonFiniteError:
        step = len(self.progress.losses)
        found = f"loss is {loss}" if not math.isfinite(loss) else f"gradient's norm is {norm}"
        kept = (
            "there is no checkpoint before it"
            if self.last_checkpoint is None
            else f"the last good checkpoint is {self.last_checkpoint.path}"
            f" after step {self.last_checkpoint.step}"
        )
        return NonFiniteError(
            f"the {found} at step {step + 1} of {self.settings.steps} (batch {step},"
            f" learning rate {learning_rate(step, self.settings.steps, self.settings):.3g});"
            f" {kept}. Try a lower train.learning_rate or a longer train.warmup."
        )
