"""Forward and backward passes of a group of workers over a batch, in micro-batches.

The gradient of a step is Σ losses / number of counted labels, both over the global batch: the same
however the batch is split among workers or over time. So are random positions, which are drawn for
the whole batch. Dropout is drawn for each micro-batch, whichever worker computes it.

Rows of similar length may go together, without the padding behind the longest: no token attends to
a later one, so what stands behind the last label of a row changes the loss by rounding alone. Of
the tokens before the first label, the last layer needs no more than keys and values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from fope_lab.data.mixture import Batch
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED
from fope_lab.model.decoder import Decoder, position_embeddings
from fope_lab.stages.training import ROW_ACCURACY, TOKEN_ACCURACY, TrainSettings
from trainers.workers import FLOAT32, Precision, WorkerGroup


class StepRunner:
    """Runs `model` on `device`, forwards and backwards for the steps of a training.

    `module` is the model as the workers wrapped it, with the parameters to optimize.
    """

    def __init__(
        self, model: Decoder, settings: TrainSettings, device: torch.device, workers: WorkerGroup
    ) -> None:
        self.module = workers.wrap(model, device, exchange_precision(settings, workers.size))
        self._called = torch.compile(self.module) if settings.compile else self.module
        self._settings, self._device, self._workers = settings, device, workers
        modules = list(model.modules())
        self._embedding = next(iter(position_embeddings(model)), None)
        self._drops = any(isinstance(module, nn.Dropout) and module.p > 0 for module in modules)

    def backward(self, batch: Batch) -> Tensor:
        """Add the gradient of the global batch's mean loss to the parameters; returns that loss.

        `batch` is this worker's share of the global batch. The loss is a scalar in nats.
        """
        counted = self._workers.sum(self._moved(_count_labels(batch))).clamp(min=1)
        first = self._workers.rank * len(batch.input_ids)
        batch = self._with_positions(batch, first)
        # All workers draw the same seed, since they share their random state.
        seed = int(torch.randint(2**62, ())) if self._drops else None
        parts = list(self._micro_batches(batch))
        total = torch.zeros((), device=self._device)
        for part in parts:
            with contextlib.ExitStack() as stack:
                if part is not parts[-1]:
                    stack.enter_context(self._workers.accumulating(self.module))
                if seed is not None:
                    stack.enter_context(self._random_state(seed + first))
                    first += len(part.input_ids)
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
    def accuracies(self, batches: Iterable[Batch]) -> dict[str, float]:
        """The share of the labels of all workers' batches that are the argmax (TOKEN_ACCURACY), and
        of the rows in which every label is (ROW_ACCURACY).

        Each label is predicted after the right tokens before it, in evaluation mode. Rows without a
        label do not count. Raises DataError if no row has one.
        """
        total = torch.zeros(4, dtype=torch.float64, device=self._device)
        self.module.eval()
        for batch in batches:
            labels = self._moved(batch.labels)
            with torch.random.fork_rng(devices=()), self._autocast():
                chosen = self._called(self._moved(batch.input_ids)).logits.argmax(-1)
            asked = labels != IGNORED
            right = chosen == labels
            total[0] += ((right | ~asked).all(1) & asked.any(1)).sum()
            total[1] += asked.any(1).sum()
            total[2] += (right & asked).sum()
            total[3] += asked.sum()
        self.module.train()
        right_rows, rows, right_tokens, tokens = self._workers.sum(total).tolist()
        if not tokens:
            raise DataError("validation data has no label tokens")
        return {ROW_ACCURACY: right_rows / rows, TOKEN_ACCURACY: right_tokens / tokens}

    def _moved(self, data: Tensor) -> Tensor:
        """The tensor on the device."""
        if self._device.type == "cuda" and data.device.type == "cpu":
            data = data.pin_memory()  # or the copy would wait for what the GPU still computes
        return data.to(self._device, non_blocking=True)

    def _autocast(self) -> torch.autocast:
        wanted = self._settings.precision == "bfloat16"
        return torch.autocast(self._device.type, torch.bfloat16, enabled=wanted)

    def _loss_sum(self, batch: Batch) -> Tensor:
        """The summed loss of a micro-batch, a float32 scalar in nats."""
        documents = None if batch.documents is None else self._moved(batch.documents)
        given: dict[str, Any] = {}
        if batch.positions is not None:
            given["positions"] = self._moved(batch.positions)
        if self._settings.length_groups is not None:
            given["last"] = tokens_from_first_label(batch.labels)
        with self._autocast():
            output = self._called(
                self._moved(batch.input_ids),
                documents=documents,
                labels=self._moved(batch.labels),
                **given,
            )
        return cast(Tensor, output.loss)

    def _with_positions(self, batch: Batch, first: int) -> Batch:
        """The batch, whose rows from `first` on are this worker's, with random positions if any."""
        if self._embedding is None:
            return batch
        rows, width = batch.input_ids.shape
        lengths = torch.full((rows,), width) if batch.lengths is None else batch.lengths
        positions = self._embedding.training_positions(
            lengths, width, first=first, rows=rows * self._workers.size
        )
        return replace(batch, positions=positions)

    @contextlib.contextmanager
    def _random_state(self, seed: int) -> Iterator[None]:
        """A context with random numbers of its own, on the CPU and on the device."""
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def _micro_batches(self, batch: Batch) -> Iterator[Batch]:
        """The batch in micro-batches of rows, whole or cut; the last one may be smaller."""
        rows, length = batch.input_ids.shape
        size = self._settings.micro_batch(self._workers.size) // length
        groups = self._settings.length_groups
        if groups is not None:
            # As many on each worker, whose exchanges of weights go together.
            yield from length_groups(batch, min(size, -(-rows // groups)))
            return
        for start in range(0, rows, size):
            yield batch.part(slice(start, start + size))


def exchange_precision(settings: TrainSettings, workers: int) -> Precision:
    """What workers exchange: bfloat16 if products are, but for sums over several micro-batches."""
    if settings.precision != "bfloat16":
        return FLOAT32
    # In bfloat16, a sum of many parts soon takes up no more of them.
    whole = settings.length_groups is None and settings.micro_batch(workers) == settings.share(
        workers
    )
    return Precision(torch.bfloat16, torch.bfloat16 if whole else torch.float32)


def _count_labels(batch: Batch) -> Tensor:
    return (batch.labels != IGNORED).sum()


def length_groups(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in groups of `rows` rows, the longest first; the last group may be smaller.

    A row ends with its last label, and a group with the end of its longest row.
    """
    counted = batch.labels != IGNORED
    places = torch.arange(1, counted.shape[1] + 1, device=counted.device)
    ends = (counted * places).amax(1)
    order = ends.argsort(descending=True, stable=True)
    for group in order.split(rows):
        yield _cut(batch.part(group), max(1, int(ends[group[0]])))


def tokens_from_first_label(labels: Tensor) -> int:
    """The number of tokens from the first one on that has a label in some row, at least 1.

    `labels` is (rows, length).
    """
    places = (labels != IGNORED).any(0).nonzero()
    return labels.shape[1] - int(places[0]) if len(places) else 1


def _cut(batch: Batch, width: int) -> Batch:
    return replace(
        batch,
        input_ids=batch.input_ids[:, :width],
        labels=batch.labels[:, :width],
        documents=None if batch.documents is None else batch.documents[:, :width],
        lengths=None if batch.lengths is None else batch.lengths.clamp(max=width),
        positions=None if batch.positions is None else batch.positions[..., :width],
    )
