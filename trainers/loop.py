"""The training loop of every kind of training stage: pretrain, extend and finetune.

The batch of a step is a function of the step, so a resumed run needs no state of the data. With the
optimizer's state and the random state from the checkpoint, it repeats the uninterrupted run bit for
bit on the CPU. On CUDA not all kernels are deterministic.
"""

from __future__ import annotations

import contextlib
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
from fope_lab.stages.training import TrainSettings
from fope_lab.store.lease import StageStoppedError
from fope_lab.store.writer import RunWriter
from trainers.checkpoints import (
    ShardedCheckpoints,
    TrainingRecord,
    best_weights,
    is_sharded,
    load_shards,
    read_record,
    restore_state,
    sharded_state,
    write_record,
    write_state,
)
from trainers.measures import device_name
from trainers.optimizer import build_optimizer, kept_memory, learning_rate
from trainers.step import StepRunner
from trainers.workers import WorkerGroup, is_lost_peer

Batches = Callable[[int], Batch]
"""Returns this worker's share of the batch of step `step`, from 0; always the same."""
HeldOutBatches = Callable[[], Iterable[Batch]]
"""Returns this worker's share of the held-out data; always the same."""
WriteModel = Callable[[Path, Mapping[str, Tensor]], None]
"""Writes a model with these weights (see `Decoder.untied_state`) to a directory."""

FINAL_SHARE = 20
"""The final loss is the mean over the last 1/20 of the steps: a single step's is mostly noise."""
SAVING_SHARE = 0.05
"""The most of the time that checkpoints by time may take: they are rarer if writing is slow."""
TOLD = ("loss", "tokens_per_second", "flops_utilisation")
"""The values that the progress view shows."""
_GO_ON, _SAVE, _STOP = range(3)
"""What the workers agree on between two steps."""
VALIDATION_SEED = 0
"""Seeds the positions that some embeddings draw, so that they are the same in every validation."""


class NonFiniteError(RuntimeError):
    """Training stopped because the loss or the gradient is not finite."""


def train(
    model: Decoder,
    batches: Batches,
    settings: TrainSettings,
    writer: RunWriter,
    write_model: WriteModel,
    *,
    seed: int,
    device: torch.device,
    held_out: HeldOutBatches | None = None,
    workers: WorkerGroup | None = None,
    peak: float | None = None,
) -> dict[str, Any]:
    """Train `model` on `device` to the end and save the stage's final checkpoint, for stage.py.

    If `writer` resumes from a checkpoint, the model must hold that checkpoint's weights. Settings
    with `validate_every` need `held_out`. All workers of a group call this, with a writer each.
    `peak` are the steps per second at the peak of all devices, if known. The global random state is
    restored at the end. Returns what result.json says. Raises NonFiniteError, and StoreError if a
    checkpoint can't be saved.
    """
    cuda_devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices), kept_memory(device):
        torch.manual_seed(seed)
        group = workers or WorkerGroup()
        run = _Run(model, settings, writer, write_model, device, held_out, group, peak)
        try:
            while not run.is_finished:
                run.save_if_due()
                run.update(run.read(batches))
        except Exception as error:
            if not is_lost_peer(error):
                run.end_writing()
            raise
    return run.summary()


@dataclass
class _Run:
    """The state of one run of the loop, from its start or checkpoint to the last step."""

    model: Decoder
    settings: TrainSettings
    writer: RunWriter
    write_model: WriteModel
    device: torch.device
    held_out: HeldOutBatches | None
    workers: WorkerGroup
    peak: float | None  # steps per second
    record: TrainingRecord = field(init=False)

    def __post_init__(self) -> None:
        self.model.train()
        self.runner = StepRunner(self.model, self.settings, self.device, self.workers)
        self.optimizer = build_optimizer(self.runner.module, self.settings)
        self.record = TrainingRecord(peak_steps=0.0)
        resumed = self.writer.resumed_from
        if resumed is not None:
            self.record = read_record(resumed.path)
            if not self.is_finished:
                state = restore_state(resumed.path, self.device)
                if is_sharded(resumed.path):
                    load_shards(resumed.path, self.model, self.optimizer)
                else:
                    self.workers.load_optimizer_state(self.model, self.optimizer, state)
        self.sharded = None
        if self.settings.keep == "last" and self.workers.saves_shards(self.model):
            self.sharded = ShardedCheckpoints(self.writer, self.workers)
        # Loss and gradient norm of the latest steps stay on the device for a while: reading them at
        # once would make every step wait for the GPU.
        self.unread: list[Tensor] = []
        self.row_step = self.saved_step = self.record.step
        self.row_time = self.saved_time = time.monotonic()
        self.saving_seconds = 0.0
        self.seconds_before, self.peak_before = self.record.seconds, self.record.peak_steps
        self.started = self.row_time

    @property
    def is_finished(self) -> bool:
        """Whether no step is left, or the last validation reached the accuracy to stop at."""
        return self.record.step == self.settings.steps or self._has_reached_accuracy

    @property
    def _has_reached_accuracy(self) -> bool:
        record, wanted = self.record, self.settings.stop_at_accuracy
        if wanted is None or record.validation_steps[-1:] != [record.step]:
            return False
        return record.validation_accuracies[-1] >= wanted

    def save_if_due(self) -> None:
        """Save a checkpoint if the last one is old, or if the driver asks the stage to stop.

        Raises StageStoppedError if the stage is to stop.
        """
        stop = self.writer.is_stop_asked()
        due = self.workers.agree(_STOP if stop else _SAVE if self._is_checkpoint_old() else _GO_ON)
        step = self.record.step
        if due != _GO_ON and step > self.saved_step:
            if self.unread:
                self._check_unread()
            self._save(final=False)
        if due == _STOP:
            if self.sharded is not None:
                self.sharded.wait()
            self.writer.progress(step, self.settings.steps, at_once=True)
            self.writer.note(f"asked to stop; step {step} is saved")
            raise StageStoppedError(f"stopped at step {step} of {self.settings.steps}")

    def _is_checkpoint_old(self) -> bool:
        if self.sharded is not None and self.sharded.is_writing:
            return False
        patience = max(60 * self.settings.checkpoint_minutes, self.saving_seconds / SAVING_SHARE)
        return time.monotonic() - self.saved_time >= patience

    def read(self, batches: Batches) -> Batch:
        started = time.monotonic()
        batch = batches(self.record.step)
        self.record.data_seconds += time.monotonic() - started
        return batch

    def update(self, batch: Batch) -> None:
        """Take one optimizer step, then log, validate and save if due."""
        settings = self.settings
        rate = learning_rate(self.record.step, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.runner.backward(batch)
        norm = self.workers.clip(self.runner.module, settings.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.unread.append(torch.stack((loss, norm.detach())))
        self.record.step = step = self.record.step + 1

        last = step == settings.steps
        row_due = last or step % settings.log_every == 0
        validation_due = settings.validate_every is not None and (
            last or step % settings.validate_every == 0
        )
        checkpoint_due = last or step % settings.checkpoint_every == 0
        if row_due or validation_due or checkpoint_due:
            norm_value = self._check_unread()
        if row_due:
            self._log(rate, norm_value)
        if validation_due:
            self._validate()
            # The selected weights go into a checkpoint, so that they outlive this process.
            checkpoint_due |= self._selected_step == step
        if self.is_finished and not row_due:
            self._log(rate, norm_value)
        if checkpoint_due or self.is_finished:
            self._save(self.is_finished)

    def summary(self) -> dict[str, Any]:
        """The part of result.json that describes the training."""
        settings, record = self.settings, self.record
        last = max(record.step // FINAL_SHARE, 1)
        peak = record.peak_steps
        tokens = record.step * settings.batch_tokens
        return {
            "loss": statistics.fmean(record.losses[-last:]),
            "steps": record.step,
            "tokens": tokens,
            "seconds": record.seconds,
            "tokens_per_second": tokens / record.seconds,
            **({"flops_utilisation": record.step / peak} if peak else {}),
            "data_seconds": record.data_seconds,
            "checkpoint_seconds": record.checkpoint_seconds,
            "validation_seconds": record.validation_seconds,
            "device": device_name(self.device),
            **self._selected(),
        }

    def _selected(self) -> dict[str, Any]:
        """The weights that the stage ends with, their loss and accuracies, if it validates."""
        record, settings = self.record, self.settings
        if settings.validate_every is None:
            return {}
        selected = self._selected_step
        step = record.step if selected is None else selected
        place = record.validation_steps.index(step)  # the last step is always validated
        stopping = {}
        if settings.stop_at_accuracy is not None:
            stopping["stopped_early"] = self._has_reached_accuracy
        # The least of several measured losses underestimates the loss on other data.
        return {
            "selected_step": step,
            "validation_loss": record.validation_losses[place],
            "least_validation_loss": min(record.validation_losses),
            "optimistic": selected is not None,
            **{name: record.accuracies(name)[place] for name in settings.accuracies},
            **stopping,
        }

    @property
    def _selected_step(self) -> int | None:
        """The validated step whose weights the stage leaves, so far; None if it leaves the last."""
        return self.record.selected_step(self.settings.keep)

    def _check_unread(self) -> float:
        """Move the unread losses into the record; returns the last step's gradient norm.

        Raises NonFiniteError for the first that is not finite. This comes before every row,
        validation and checkpoint, so that no checkpoint has steps after such a loss.
        """
        values = torch.stack(self.unread).tolist()
        self.unread.clear()
        for loss, norm in values:
            for what, value in (("loss", loss), ("gradient's norm", norm)):
                if not math.isfinite(value):
                    raise self._not_finite(what, value, step=len(self.record.losses))
            self.record.losses.append(loss)
        return float(norm)

    def _log(self, rate: float, norm: float) -> None:
        step, now = self.record.step, time.monotonic()
        steps_per_second = (step - self.row_step) / max(now - self.row_time, 1e-9)
        # A row begins at the same step even if another attempt took some of its steps.
        row_start = (step - 1) // self.settings.log_every * self.settings.log_every
        values = {
            "loss": statistics.fmean(self.record.losses[row_start:]),
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens_per_second": steps_per_second * self.settings.batch_tokens,
            "data_seconds": self.record.data_seconds,
            "checkpoint_seconds": self.record.checkpoint_seconds,
        }
        if self.peak is not None:
            values["flops_utilisation"] = steps_per_second / self.peak
        self.row_step, self.row_time = step, now
        self.writer.log(step, values)
        told: dict[str, Any] = {name: values[name] for name in TOLD if name in values}
        self.writer.progress(step, step if self.is_finished else self.settings.steps, **told)

    def _validate(self) -> None:
        """Measure the loss on held-out data, and the accuracies that the settings ask for."""
        assert self.held_out is not None
        started = time.monotonic()
        step = self.record.step
        cuda_devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda_devices):  # some embeddings draw positions
            torch.manual_seed(VALIDATION_SEED)
            loss = self.runner.loss(self.held_out())
        if not math.isfinite(loss):
            raise self._not_finite("validation loss", loss, step - 1)
        self.record.validation_steps.append(step)
        self.record.validation_losses.append(loss)
        values = {"validation_loss": loss}
        if self.settings.accuracies:
            with torch.random.fork_rng(devices=cuda_devices):
                torch.manual_seed(VALIDATION_SEED)
                accuracies = self.runner.accuracies(self.held_out())
            for name in self.settings.accuracies:
                self.record.accuracies(name).append(accuracies[name])
                values[name] = accuracies[name]
        if self.is_finished:
            values["least_validation_loss"] = min(self.record.validation_losses)
        self.writer.log(step, values)
        taken = time.monotonic() - started
        self.row_time += taken  # validation does not count as training time
        self.record.validation_seconds += taken

    def _save(self, final: bool) -> None:
        record, device = self.record, self.device
        started = time.monotonic()
        taken = started - self.started
        record.seconds = self.seconds_before + taken
        record.peak_steps = None
        if self.peak is not None and self.peak_before is not None:
            record.peak_steps = self.peak_before + taken * self.peak
        if self.sharded is not None and not final:

            def write_small(directory: Path) -> None:
                write_record(directory, record)
                write_state(directory, {}, None, device)

            shards = sharded_state(self.model, self.optimizer)
            self.sharded.begin(record.step, shards, write_small)
            self._end_saving(started)
            record.checkpoint_seconds += self.saving_seconds
            return
        if self.sharded is not None:
            self.sharded.wait()
        earlier = self._selected_step not in (None, record.step)
        last = self.writer.newest
        best = best_weights(last.path) if earlier and last else None
        weights = optimizer = None
        # All workers gather what they share, although only one of them writes it.
        if not (final and earlier):
            weights = self.workers.weights(self.model)
        if not final:
            optimizer = self.workers.optimizer_state(self.model, self.optimizer)

        def write(directory: Path) -> None:
            self.write_model(directory, load_file(best) if weights is None else weights)
            write_record(directory, record)
            if optimizer is not None:
                write_state(directory, optimizer, best, device)

        self.writer.save_checkpoint(record.step, write)
        self._end_saving(started)
        if not final:  # the last one's time is none of the record's seconds
            record.checkpoint_seconds += self.saving_seconds

    def _end_saving(self, started: float) -> None:
        self.saved_step, self.saved_time = self.record.step, time.monotonic()
        self.saving_seconds = self.saved_time - started

    def end_writing(self) -> None:
        """Let a checkpoint that is being written become whole: an error ends the training here."""
        if self.sharded is not None:
            with contextlib.suppress(Exception):
                self.sharded.wait()

    def _not_finite(self, what: str, value: float, step: int) -> NonFiniteError:
        self.end_writing()  # it is the newest one that the error names
        last = self.writer.newest
        kept = "there is no checkpoint before it"
        if last is not None:
            kept = f"the last good checkpoint is {last.path} after step {last.step}"
        return NonFiniteError(
            f"the {what} is {value} at step {step + 1} of {self.settings.steps} (batch {step},"
            f" learning rate {learning_rate(step, self.settings):.3g}); {kept}. Another run would"
            " repeat the same steps from there. A lower train.learning_rate or a longer"
            " train.warmup makes another stage, which starts from step 0."
        )
