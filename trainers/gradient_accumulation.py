"""Forward and backward passes of a group of workers over a batch, in micro-batches.

The gradient of a step is Σ losses / number of counted labels, both over the global batch. So it is
the same however the batch is split, among workers or in time, and each label counts the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor

from fope_lab.data.mixture import IGNORED, Batch
from fope_lab.data.problems import DataError
from fope_lab.model.decoder import Decoder
from fope_lab.stages import TrainSettings
from trainers.worker_group import WorkerGroup


class StepRunner:
    """StepRunner through `model`, which is on `device` and which the workers may share among them.

    `module` is the model as the workers wrapped it: its parameters are the ones to optimise, under
    their plain names. What is called is the module, or that compiled.
    """

    def __init__(
        self, model: Decoder, settings: TrainSettings, device: torch.device, workers: WorkerGroup
    ) -> None:
        self.module = workers.wrap(model)
        self._called = torch.compile(self.module) if settings.compile else self.module
        self._settings, self._device, self._workers = settings, device, workers

    def backward(self, batch: Batch) -> Tensor:
        """Add the gradient of the global batch's mean loss, of which `batch` is this worker's
        share, to the parameters; that loss, a scalar in nats."""
        counted = self._workers.sum(_counted(batch).to(self._device)).clamp(min=1)
        parts = list(self._parts(batch))
        total = torch.zeros((), device=self._device)
        for part in parts:
            with contextlib.ExitStack() as stack:
                if part is not parts[-1]:
                    stack.enter_context(self._workers.accumulating(self.module))
                    # Randomised positions are drawn for a batch, so each part draws the same ones.
                    stack.enter_context(torch.random.fork_rng(devices=()))
                loss = self._loss_sum(part)
                (loss / counted).backward()
            total += loss.detach()
        return self._workers.sum(total) / counted

    @torch.no_grad()
    def loss(self, batches: Iterable[Batch]) -> float:
        """Mean loss over all labels of all workers' batches, in nats; the model in eval mode.
        Raises DataError if there is no label."""
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        self.module.eval()
        for batch in batches:
            # However many batches there are, all draw the same positions where these are random.
            with torch.random.fork_rng(devices=()):
                total[0] += self._loss_sum(batch)
            total[1] += _counted(batch)
        self.module.train()
        loss_sum, counted = self._workers.sum(total).tolist()
        if not counted:
            raise DataError("no token of the held-out data is to be learnt")
        return float(loss_sum / counted)

    def _loss_sum(self, batch: Batch) -> Tensor:
        """The summed loss of a micro-batch, float32."""
        device = self._device
        documents = None if batch.documents is None else batch.documents.to(device)
        with torch.autocast(
            device.type, torch.bfloat16, enabled=self._settings.precision == "bfloat16"
        ):
            output = self._called(
                batch.input_ids.to(device), documents=documents, labels=batch.labels.to(device)
            )
        return cast(Tensor, output.loss)

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch in micro-batches of whole rows, the last one perhaps smaller."""
        rows, length = batch.input_ids.shape
        tokens = self._settings.micro_batch_tokens
        size = rows if tokens is None else tokens // length
        for start in range(0, rows, size):
            part = slice(start, start + size)
            documents = None if batch.documents is None else batch.documents[part]
            yield Batch(batch.input_ids[part], batch.labels[part], documents)


def _counted(batch: Batch) -> Tensor:
    return (batch.labels != IGNORED).sum()
