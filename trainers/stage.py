"""The work of every training stage: from its configuration to a trained checkpoint.

The kinds of training differ in their tokenizer and first model, and share everything after it.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fope_lab.config.processor import choose_device
from fope_lab.config.roles import MODEL, text_role, validation_role
from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data
from fope_lab.data.rows import IGNORED
from fope_lab.data.tokenizers.tokenizer import Tokenizer, load_for_stage, load_tokenizer
from fope_lab.model import load_model, read_config, save_model
from fope_lab.model.decoder import Decoder
from fope_lab.model.lora import add_adapter, merge_adapter
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.stages.training import Extend, Finetune, FurtherTraining, Pretrain, TrainingConfig
from fope_lab.store.records import first_line
from fope_lab.store.writer import RunWriter
from trainers.checkpoints import is_sharded
from trainers.loop import train
from trainers.measures import device_name, steps_per_second_at_peak, why_unknown
from trainers.models import model_facts
from trainers.workers import WorkerGroup

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""What torch's error contains on the CPU, where it is a plain RuntimeError."""


class TrainingMemoryError(RuntimeError):
    """A training needs more memory than there is; the message says what to lower."""


@contextlib.contextmanager
def memory_advice(spec: TrainingConfig) -> Iterator[None]:
    """Turn every out-of-memory error of the block into a TrainingMemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_known and CPU_ALLOCATOR not in str(error):
            raise
        train, length = spec.train, spec.data.length
        micro = train.micro_batch(spec.resources.size)
        kept, anew = [], []
        if micro > length:
            kept.append(f"lower train.micro_batch_tokens (now {micro}; at least data.length)")
        if not train.gradient_checkpointing:
            kept.append("set train.gradient_checkpointing: true (now false)")
        if spec.resources.strategy != "fsdp":
            kept.append("share the model: more resources.workers, and strategy: fsdp")
        if train.precision != "bfloat16":
            anew.append(f"set train.precision: bfloat16 (now {train.precision})")
        anew.append(f"lower data.length (now {length})")
        ways = [f"To continue from the last checkpoint: {'; '.join(kept)}."] if kept else []
        ways.append(f"As another stage, which starts from step 0: {'; '.join(anew)}.")
        text = f"out of memory. {' '.join(ways)} ({first_line(error)})"
        raise TrainingMemoryError(text) from error


class HeldOut:
    """At most `tokens` held-out tokens, in rows of `length` tokens, none of which is read twice.

    Rows come from the `validation` split of the training's corpora, in the proportions of its
    mixture, and from its tasks only where there is no text. Their order depends on the data alone,
    so all embeddings and seeds are measured on the same rows. `directories` holds the prepared data
    of source i as "validation.i". Each worker reads `rows` rows at a time. With `first_half`, only
    the first half of each corpus is read. Raises DataError if a corpus has no row of this length.
    """

    def __init__(
        self,
        data: Data,
        directories: Mapping[str, Path],
        tokenizer: Tokenizer,
        *,
        tokens: int,
        length: int,
        rows: int,
        workers: WorkerGroup,
        first_half: bool = False,
    ) -> None:
        texts = [i for i, source in enumerate(data.mix) if source.corpus is not None]
        places = texts or [
            i for i, source in enumerate(data.mix) if source.task and source.task.has_held_out
        ]
        self._data = TrainingData(
            replace(data, length=length, mix=tuple(data.mix[i] for i in places)),
            {text_role(j): directories[validation_role(i)] for j, i in enumerate(texts)},
            tokenizer,
            batch_size=rows * workers.size,
            seed=0,
            rank=workers.rank,
            world_size=workers.size,
            split="validation",
            first_half=first_half,
        )
        self._rows, self._workers = rows, workers
        self.total = self._distinct_rows(tokens)

    def batches(self) -> Iterator[Batch]:
        """This worker's batches, equally many on each worker; rows past the last have no labels."""
        together = self._rows * self._workers.size
        for step, first in enumerate(range(0, self.total, together)):
            batch = self._data.batch(step)
            left = self.total - first - self._workers.rank * self._rows
            past = torch.arange(self._rows) >= left
            yield replace(batch, labels=batch.labels.masked_fill(past[:, None], IGNORED))

    def _distinct_rows(self, tokens: int) -> int:
        """The number of rows before the mixture repeats one, within `tokens` tokens."""
        epochs = [source.epoch for source in self._data.sources]

        def repeats(rows: int) -> bool:
            _, of_each = self._data.mixture.assign(rows, 0)
            return any(
                epoch is not None and count > epoch
                for count, epoch in zip(of_each, epochs, strict=True)
            )

        return bisect.bisect_left(range(1, tokens // self._data.length + 1), True, key=repeats)


def _tokenizer(spec: TrainingConfig, parents: Mapping[str, Path]) -> Tokenizer:
    """The stage's tokenizer, else the parent's.

    That of a `finetune` may add a chat template and tokens. Raises DataError if it changes the ids
    that the model was trained with.
    """
    if isinstance(spec, Pretrain):
        return load_for_stage(spec.tokenizer, parents)
    parent = parents[MODEL]
    config = read_config(parent)
    own = load_tokenizer(config.tokenizer)
    if not isinstance(spec, Finetune) or spec.tokenizer is None:
        return own
    tokenizer = load_for_stage(spec.tokenizer, parents)
    if not own.vocabulary().items() <= tokenizer.vocabulary().items():
        raise DataError(
            f"the tokenizer {spec.tokenizer} has other ids than {config.tokenizer}, which the "
            f"model of {parent} was trained with"
        )
    if tokenizer.tokens > config.model.vocab_size:
        raise DataError(
            f"the tokenizer has {tokenizer.tokens} tokens, and the model of {parent} has "
            f"{config.model.vocab_size}"
        )
    return tokenizer


def _first_model(spec: TrainingConfig, parents: Mapping[str, Path]) -> Decoder:
    """The model at step 0: new, or the parent's, with the stage's embedding if it has one.

    The embedding's original length stays the length that a model was first trained at. A new
    embedding of the same mechanism keeps the tensors of the old one (learned parameters, and FoPE's
    coefficients) if all have the same shapes; if not, `resizing` says what becomes of them. What is
    drawn is drawn from the stage's seed.
    """
    if isinstance(spec, Pretrain):
        length = spec.data.length
        return Decoder(spec.model, spec.embedding, train_length=length, seed=spec.seed)
    assert isinstance(spec, FurtherTraining)
    resizing = spec.resizing if isinstance(spec, Extend) else "draw"
    model = load_model(parents[MODEL], embedding=spec.embedding, seed=spec.seed, resizing=resizing)
    merge_adapter(model)  # of a training before
    if spec.train.adapter is not None:
        add_adapter(model, spec.train.adapter, spec.seed)
    return model


def run(
    spec: TrainingConfig,
    writer: RunWriter,
    parents: Mapping[str, Path],
    workers: WorkerGroup | None = None,
) -> dict[str, Any]:
    """Train to the end, from the stage's start or from the checkpoint that the attempt resumes: the
    entry point of every training, which its slot calls (orchestration/trial.py).

    `parents` holds the checkpoint folders of the stage's parents by role (config/roles.py). Every
    checkpoint gets a copy of the tokenizer. Returns what result.json says. Raises
    TrainingMemoryError, which says what to lower, loop.NonFiniteError, DataError,
    CheckpointError and EmbeddingError.
    """
    with memory_advice(spec):
        return _train(spec, writer, parents, workers or WorkerGroup())


def _train(
    spec: TrainingConfig, writer: RunWriter, parents: Mapping[str, Path], workers: WorkerGroup
) -> dict[str, Any]:
    settings, length = spec.train, spec.data.length
    tokenizer = _tokenizer(spec, parents).begun_by(spec.prefix)
    device, resumed = choose_device(spec.resources.gpus), writer.resumed_from
    if resumed is None or is_sharded(resumed.path):  # the workers read their shares of it later
        model = _first_model(spec, parents)
    else:
        model = load_model(resumed.path)
    model.gradient_checkpointing = settings.gradient_checkpointing
    data = TrainingData(
        spec.data,
        parents,
        tokenizer,
        batch_size=settings.batch_tokens // length,
        seed=spec.seed,
        rank=workers.rank,
        world_size=workers.size,
    )
    held_out = None
    if settings.validation_tokens is not None:
        validated_length = settings.validation_length or length
        held_out = HeldOut(
            spec.data,
            parents,
            tokenizer,
            tokens=settings.validation_tokens,
            length=validated_length,
            rows=max(1, settings.micro_batch(workers.size) // validated_length),
            workers=workers,
            first_half=settings.validation_part == "first-half",
        )

    def write_model(directory: Path, weights: Mapping[str, Tensor]) -> None:
        saved = tokenizer.save(directory)
        save_model(directory, model, context_length=length, tokenizer=saved, weights=weights)

    if (unknown := why_unknown(device_name(device))) is not None:
        writer.note(unknown)
    recorded = train(
        model,
        data.batch,
        settings,
        writer,
        write_model,
        seed=spec.seed,
        device=device,
        held_out=None if held_out is None else held_out.batches,
        workers=workers,
        peak=steps_per_second_at_peak(
            spec, model.config, model.embedding, device_name(device), workers.size
        ),
    )
    if held_out is not None:
        recorded["validation_rows"] = held_out.total
    recorded |= model_facts(model)
    if tokenizer.prefix_ids:
        recorded["prefix"] = list(tokenizer.prefix_ids)
    if examples := data.examples():
        recorded["examples"] = examples
    names = [metric.name for metric in spec.metrics() if metric.name in recorded]
    measured = [Measurement(name=name, value=recorded.pop(name)) for name in names]
    return ResultRecord(metrics=tuple(measured), recorded=recorded).as_json()
