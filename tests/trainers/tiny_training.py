"""A model of a few numbers and its training, for tests of the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from said import TIMINGS
from sections import read_section
from torch import Tensor, nn

from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED
from fope_lab.stages.training import TrainSettings
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import StageStoppedError, StopRequest
from fope_lab.store.root import Store
from fope_lab.store.writer import RunWriter
from trainers.loop import train
from trainers.workers import WorkerGroup

VOCABULARY, WIDTH, ROWS, LENGTH = 7, 5, 3, 4
WEIGHTS = "model.safetensors"


class Output(NamedTuple):
    """As the decoder's."""

    logits: Tensor | None = None
    loss: Tensor | None = None


class Bigrams(nn.Module):
    """The next token from the present one alone: embedding, dropout, linear map."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=generator))
        self.weight = nn.Parameter(torch.randn(WIDTH, VOCABULARY, generator=generator))
        self.bias = nn.Parameter(torch.randn(VOCABULARY, generator=generator))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, input_ids: Tensor, *, documents: Tensor | None = None, labels: Tensor | None = None
    ) -> Output:
        """The logits, or with labels the sum of the losses, as the decoder's."""
        logits = self.dropout(self.embedding[input_ids]) @ self.weight + self.bias
        if labels is None:
            return Output(logits)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return Output(loss=loss)

    def untied_state(self) -> dict[str, Tensor]:
        """As the decoder's."""
        return self.state_dict()


def batch(step: int) -> Batch:
    """Batch number `step`; some labels are left out."""
    generator = torch.Generator().manual_seed(100 + step)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator)
    labels = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator)
    labels[step % ROWS, : 1 + step % LENGTH] = IGNORED
    return Batch(ids, labels)


def train_settings(steps: int, **changes: Any) -> TrainSettings:
    """Settings of a training of `steps` steps of ROWS × LENGTH tokens."""
    fields = {
        "tokens": steps * ROWS * LENGTH,
        "batch_tokens": ROWS * LENGTH,
        "learning_rate": 0.05,
        "checkpoint_every": 4,
        "log_every": 3,
    }
    return read_section(TrainSettings, fields | changes)


class DiedError(Exception):
    """Stands for a process that dies."""


@dataclass
class TinyStage:
    """A stage in a store, trained by as many attempts as a test wants."""

    root: Path
    settings: TrainSettings
    dropout: float = 0.0
    held_out: tuple[Batch, ...] = ()
    peak: float | None = None

    @property
    def stop(self) -> StopRequest:
        """The file by which the stage is asked to stop."""
        return StopRequest(self.root / "stop")

    @property
    def folder(self) -> StageFolder:
        """The stage's folder in the store."""
        return Store(self.root).folder("pretrain", "tiny")

    def attempt(
        self,
        batches: Callable[[int], Batch] = batch,
        model: Bigrams | None = None,
        finish: bool = True,
        observe: Callable[[], dict[str, float]] | None = None,
    ) -> dict[str, Any]:
        """One attempt, from the last checkpoint on: what `train` returned."""
        with self.folder.begin("test", {}, stop_file=self.stop.path) as attempt:
            attempt.writer.observe = observe
            summary = self.train(attempt.writer, batches, model or Bigrams(self.dropout))
            if finish:
                attempt.finish(summary)
        return summary

    def interrupted_at(self, step: int, batches: Callable[[int], Batch] = batch) -> None:
        """An attempt that dies before update number `step`, if it comes to it."""

        def dying(index: int) -> Batch:
            if index == step:
                raise DiedError
            return batches(index)

        with contextlib.suppress(DiedError):
            self.attempt(dying, finish=False)

    def stopped_in(self, step: int) -> None:
        """An attempt that is asked to stop during update number `step`, if it comes to it."""
        self.stop.prepare()

        def asked(index: int) -> Batch:
            if index == step:
                self.stop.make()
            return batch(index)

        with self.folder.begin("test", {}, stop_file=self.stop.path) as attempt:
            try:
                attempt.finish(self.train(attempt.writer, asked, Bigrams(self.dropout)))
            except StageStoppedError:
                attempt.release()
        self.stop.prepare()

    def final_weights(self) -> dict[str, Tensor]:
        """The weights in the stage's checkpoint."""
        checkpoint = self.folder.checkpoint()
        return load_file(checkpoint.path / WEIGHTS)

    def logged(self, name: str) -> dict[int, float]:
        """The values of a metric by step."""
        return {row.step: row.values[name] for row in self.folder.rows() if name in row.values}

    def outcome(self) -> tuple[Any, ...]:
        """All rows and the result without their timings, and the weights."""
        result = self.folder.result()
        rows = [(row.step, row.values) for row in self.folder.rows()]
        kept = [(step, _without_timings(values)) for step, values in rows]
        weights = {name: tensor.tolist() for name, tensor in self.final_weights().items()}
        return kept, _without_timings(result), weights

    def train(
        self,
        writer: RunWriter,
        batches: Callable[[int], Batch],
        model: Bigrams,
        workers: WorkerGroup | None = None,
    ) -> dict[str, Any]:
        """The loop with a writer: what it returned."""
        if writer.resumed_from is not None:
            model.load_state_dict(load_file(writer.resumed_from.path / WEIGHTS))
        return train(
            model,
            batches,
            self.settings,
            writer,
            lambda directory, weights: save_file(dict(weights), directory / WEIGHTS),
            seed=11,
            device=torch.device("cpu"),
            held_out=lambda: self.held_out,
            workers=workers,
            peak=self.peak,
        )


def _without_timings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in TIMINGS}
