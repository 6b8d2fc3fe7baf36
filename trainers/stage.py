"""The work of every training stage: from its configuration to a trained checkpoint.

The kinds of training differ in their start (trainers/start.py) and share everything after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fope_lab.data.mixture import TrainingData
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.model import load_model, save_model
from fope_lab.model.device import choose_device
from fope_lab.stages import TrainingConfig
from fope_lab.stages.base import load_function
from fope_lab.stages.result import Measurement, ResultRecord
from fope_lab.store import RunWriter
from trainers.loop import train
from trainers.model_facts import model_facts
from trainers.oom_advice import memory_advice
from trainers.sharded_checkpoints import is_sharded
from trainers.start import Start
from trainers.utilisation import device_name, steps_per_second_at_peak, why_unknown
from trainers.validation import HeldOut
from trainers.worker_group import WorkerGroup


def run(
    spec: TrainingConfig,
    writer: RunWriter,
    parents: Mapping[str, Path],
    workers: WorkerGroup | None = None,
) -> dict[str, Any]:
    """Train to the end, from the stage's start or from the checkpoint that the attempt resumes.

    `parents` holds the checkpoint folders of the stage's parents by role (data/roles.py). Every
    checkpoint gets a copy of the tokenizer. Returns what result.json says. Raises
    oom_advice.TrainingMemoryError, which says what to lower, loop.NonFiniteError, DataError,
    CheckpointError and EmbeddingError.
    """
    start: Start = load_function(spec.start)(spec, parents)
    with memory_advice(spec):
        return _train(spec, writer, parents, start, workers or WorkerGroup())


def _train(
    spec: TrainingConfig,
    writer: RunWriter,
    parents: Mapping[str, Path],
    start: Start,
    workers: WorkerGroup,
) -> dict[str, Any]:
    device = choose_device(spec.resources.gpus)
    resumed, tokenizer = writer.resumed_from, start.tokenizer
    if resumed is None or is_sharded(resumed.path):  # the workers read their shares of it later
        model = start.build_model()
    else:
        model = load_model(resumed.path)
    model.gradient_checkpointing = spec.train.gradient_checkpointing
    data = TrainingData(
        spec.data,
        parents,
        tokenizer,
        batch_size=spec.train.batch_tokens // spec.data.length,
        seed=spec.seed,
        rank=workers.rank,
        world_size=workers.size,
    )

    def write_model(directory: Path, weights: Mapping[str, Tensor]) -> None:
        save_model(
            directory,
            model,
            context_length=spec.data.length,
            tokenizer=tokenizer.save(directory),
            weights=weights,
        )

    if (unknown := why_unknown(device_name(device))) is not None:
        writer.note(unknown)
    held_out = _held_out(spec, parents, tokenizer, workers)
    summary = train(
        model,
        data.batch,
        spec.train,
        writer,
        write_model,
        seed=spec.seed,
        device=device,
        held_out=None if held_out is None else held_out.batches,
        workers=workers,
        peak=steps_per_second_at_peak(spec, model.config, device_name(device), workers.size),
    )
    examples = {"examples": data.examples()} if data.examples() else {}
    validated = {} if held_out is None else {"validation_rows": held_out.total}
    recorded = {**summary, **validated, **model_facts(model), **examples}
    names = [metric.name for metric in spec.metrics() if metric.name in recorded]
    measured = [Measurement(name=name, value=recorded.pop(name)) for name in names]
    return ResultRecord(metrics=tuple(measured), recorded=recorded).as_json()


def _held_out(
    spec: TrainingConfig, parents: Mapping[str, Path], tokenizer: Tokenizer, workers: WorkerGroup
) -> HeldOut | None:
    """The held-out data of a stage that validates, read in micro-batches of the training's size."""
    train, length = spec.train, spec.train.validation_length or spec.data.length
    if train.validation_tokens is None:
        return None
    return HeldOut(
        spec.data,
        parents,
        tokenizer,
        tokens=train.validation_tokens,
        length=length,
        rows=max(1, train.micro_batch(workers.size) // length),
        workers=workers,
        first_half=train.validation_part == "first-half",
    )
