"""A stage's cost before it runs: parameters, tokens, FLOPs and memory, from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fope_lab.evaluation.base import ForwardPass, ModelEvaluation
from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.model.memory import Memory, reading_memory, training_memory
from fope_lab.stages import StageConfig, SwapEmbedding, TrainingConfig
from fope_lab.sweep.computed_tokens import computed_widths


@dataclass(frozen=True)
class Cost:
    """The cost of a stage; a field is None if only running can tell it.

    `parameters` are the model's, `tokens` the number that the model reads, `flops` the floating
    point operations, and `memory` the largest number of bytes that a worker needs at once. A
    training counts forward and backward, an evaluation forward only, and another embedding without
    training nothing. A training with `length_groups` reads all tokens of its rows, and its FLOPs
    are those of the tokens that it computes. A perplexity stage with a limit on its tokens is
    assumed to reach it.
    """

    parameters: Parameters | None = None
    tokens: int | None = None
    flops: float | None = None
    memory: int | None = None


def cost_of(spec: StageConfig, model: ModelConfig, embedding_parameters: int) -> Cost:
    """Return the cost of a stage.

    `embedding_parameters` are those that the position embedding learns. They count as body.
    """
    size = parameters(model)
    size = replace(size, body=size.body + embedding_parameters)
    if isinstance(spec, TrainingConfig):
        tokens = spec.train.steps * spec.train.batch_tokens
        flops = sum(
            spec.train.steps * rows * width * flops_per_token(model, width)
            for width, rows in computed_widths(spec).items()
        )
        return Cost(size, tokens, flops, training_peak(spec, model, embedding_parameters).peak)
    if isinstance(spec, SwapEmbedding):
        return Cost(size, 0, 0.0, copying_peak(model, embedding_parameters).peak)
    if isinstance(spec, ModelEvaluation):
        peak = reading_peak(spec, model, embedding_parameters)
        memory = None if peak is None else peak.peak
        passes = spec.forward_passes()
        if passes is None:
            return Cost(size, memory=memory)
        return replace(_forward(size, model, passes), memory=memory)
    return Cost(size)


def training_peak(spec: TrainingConfig, model: ModelConfig, embedding_parameters: int) -> Memory:
    """Return the memory of a worker; for `embedding_parameters` see `cost_of`."""
    train, resources = spec.train, spec.resources
    at_once = train.micro_batch(resources.size)
    return training_memory(
        model,
        batch=max(1, at_once // spec.data.length),
        length=spec.data.length,
        precision=train.precision,
        gradient_checkpointing=train.gradient_checkpointing,
        micro_batches=-(-train.share(resources.size) // at_once),
        learned=embedding_parameters,
        shards=resources.size if resources.strategy == "fsdp" else 1,
    )


def copying_peak(model: ModelConfig, embedding_parameters: int) -> Memory:
    """Return the memory of a model that reads nothing."""
    return reading_memory(model, batch=0, length=0, learned=embedding_parameters)


def reading_peak(
    spec: ModelEvaluation, model: ModelConfig, embedding_parameters: int
) -> Memory | None:
    """Return the memory at the length that needs most: shorter sequences go in larger batches.

    Returns None if only running can tell how long the sequences are.
    """
    longest = spec.max_sequence_length()
    if longest is None:
        return None
    passes = spec.forward_passes() or ()
    lengths = {longest[1], *(each.length for each in passes if each.sequences)}
    peaks = (
        reading_memory(
            model,
            batch=max(1, spec.batch_tokens // length),
            length=length,
            learned=embedding_parameters,
        )
        for length in lengths
        if length
    )
    return max(peaks, key=lambda memory: memory.peak)


def _forward(size: Parameters, model: ModelConfig, passes: Iterable[ForwardPass]) -> Cost:
    """Return the cost of all these forward passes."""
    counted = [(length, length * count) for length, count in passes if length * count]
    flops = sum(tokens * flops_per_token(model, length) / 3 for length, tokens in counted)
    return Cost(size, sum(tokens for _, tokens in counted), flops)
