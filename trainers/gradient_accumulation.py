"""Forward and backward passes of a group of workers over a batch, in micro-batches.

The gradient of a step is Σ losses / number of counted labels, both over the global batch. It is
therefore the same however the batch is split among workers or over time, and every label counts
equally.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED
from fope_lab.model.decoder import Decoder
from fope_lab.stages import TrainSettings
from trainers.worker_group import WorkerGroup


class StepRunner:
    """Runs `model`, which is on `device`, forwards and backwards for the steps of a training.

    `module` is the model as the workers wrapped it. Its parameters are the ones to optimize, under
    their plain names. If the settings ask for it, a compiled module is what is called.
    """

    def __init__(
        self, model: Decoder, settings: TrainSettings, device: torch.device, workers: WorkerGroup
    ) -> None:
        self.module = workers.wrap(model)
        self._called = torch.compile(self.module) if settings.compile else self.module
        self._settings, self._device, self._workers = settings, device, workers

    def backward(self, batch: Batch) -> Tensor:
        """Add the gradient of the global batch's mean loss to the parameters.

        `batch` is this worker's share of the global batch. Returns the mean loss over all labels of
        the global batch, a scalar in nats.
        """
        counted = self._workers.sum(_count_labels(batch).to(self._device)).clamp(min=1)
        parts = list(self._micro_batches(batch))
        total = torch.zeros((), device=self._device)
        for part in parts:
            with contextlib.ExitStack() as stack:
                if part is not parts[-1]:
                    stack.enter_context(self._workers.accumulating(self.module))
                    # Random positions are drawn once per batch, so every part draws the same ones.
                    stack.enter_context(torch.random.fork_rng(devices=()))
                loss = self._loss_sum(part)
                (loss / counted).backward()
            total += loss.detach()
        return self._workers.sum(total) / counted

    @torch.no_grad()
    def loss(self, batches: Iterable[Batch]) -> float:
        """The mean loss over all labels of all workers' batches, in nats, in evaluation mode.

        Raises DataError if no token has a label.
        """
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        self.module.eval()
        for batch in batches:
            # Every batch draws the same random positions, however many batches there are.
            with torch.random.fork_rng(devices=()):
                total[0] += self._loss_sum(batch)
            total[1] += _count_labels(batch)
        self.module.train()
        loss_sum, counted = self._workers.sum(total).tolist()
        if not counted:
            raise DataError("validation data has no label tokens")
        return float(loss_sum / counted)

    @torch.no_grad()
    def accuracy(self, batches: Iterable[Batch]) -> float:
        """The share of the rows of all workers' batches in which every label is the argmax.

        Each label is predicted after the right tokens before it, in evaluation mode. Rows without a
        label do not count. Raises DataError if no row has one.
        """
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        self.module.eval()
        for batch in batches:
            labels = batch.labels.to(self._device)
            with torch.random.fork_rng(devices=()), self._autocast():
                chosen = self._called(batch.input_ids.to(self._device)).logits.argmax(-1)
            asked = labels != IGNORED
            total[0] += (((chosen == labels) | ~asked).all(1) & asked.any(1)).sum()
            total[1] += asked.any(1).sum()
        self.module.train()
        right, counted = self._workers.sum(total).tolist()
        if not counted:
            raise DataError("validation data has no label tokens")
        return float(right / counted)

    def _autocast(self) -> torch.autocast:
        """The context of a forward pass: its products have the precision of the settings."""
        wanted = self._settings.precision == "bfloat16"
        return torch.autocast(self._device.type, torch.bfloat16, enabled=wanted)

    def _loss_sum(self, batch: Batch) -> Tensor:
        """The summed loss of a micro-batch, a float32 scalar in nats."""
        device = self._device
        documents = None if batch.documents is None else batch.documents.to(device)
        with self._autocast():
            output = self._called(
                batch.input_ids.to(device), documents=documents, labels=batch.labels.to(device)
            )
        return cast(Tensor, output.loss)

    def _micro_batches(self, batch: Batch) -> Iterator[Batch]:
        """The batch in micro-batches of whole rows; the last one may be smaller."""
        rows, length = batch.input_ids.shape
        size = self._settings.micro_batch(self._workers.size) // length
        for start in range(0, rows, size):
            part = slice(start, start + size)
            documents = None if batch.documents is None else batch.documents[part]
            yield Batch(batch.input_ids[part], batch.labels[part], documents)


def _count_labels(batch: Batch) -> Tensor:
    return (batch.labels != IGNORED).sum()
