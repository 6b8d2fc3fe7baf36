"""What a stage costs before it runs: parameters, tokens, FLOPs, memory from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fope_lab.evaluation.base import ForwardPass, ModelEvaluation
from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.model.memory import Memory, reading_memory, training_memory
from fope_lab.stages import StageConfig, TrainingConfig


@dataclass(frozen=True)
class Cost:
    """Parameters of the model, tokens that it reads, FLOPs, and the most memory that a worker needs
    at once, in bytes; None where nothing is known.

    A training stage counts forward and backward, an evaluation forward only. The tokens of a
    perplexity stage without a limit are its corpus's, which is known once that is prepared; with a
    limit, the corpus is taken to have as many.
    """

    parameters: Parameters | None = None
    tokens: int | None = None
    flops: float | None = None
    memory: int | None = None


def estimate(spec: StageConfig, model: ModelConfig, learned: int) -> Cost:
    """The cost of a stage on a model whose position embedding learns `learned` parameters, which
    count as body."""
    size = parameters(model)
    size = replace(size, body=size.body + learned)
    if isinstance(spec, TrainingConfig):
        tokens = spec.train.steps * spec.train.batch_tokens
        flops = tokens * flops_per_token(model, spec.data.length)
        return Cost(size, tokens, flops, training_peak(spec, model, learned).peak)
    if isinstance(spec, ModelEvaluation):
        held = reading_peak(spec, model, learned)
        memory = None if held is None else held.peak
        readings = spec.forward_passes()
        if readings is None:
            return Cost(size, memory=memory)
        return replace(_forward(size, model, readings), memory=memory)
    return Cost(size)


def training_peak(spec: TrainingConfig, model: ModelConfig, learned: int) -> Memory:
    """The memory of a worker, on a model whose position embedding learns `learned` parameters."""
    train, resources = spec.train, spec.resources
    at_once = train.micro_batch(resources.size)
    return training_memory(
        model,
        batch=max(1, at_once // spec.data.length),
        length=spec.data.length,
        precision=train.precision,
        gradient_checkpointing=train.gradient_checkpointing,
        micro_batches=-(-train.share(resources.size) // at_once),
        learned=learned,
        shards=resources.size if resources.strategy == "fsdp" else 1,
    )


def reading_peak(spec: ModelEvaluation, model: ModelConfig, learned: int) -> Memory | None:
    """The memory at the length that needs most: shorter sequences are read more at a time.

    None where only running can tell how long sequences are.
    """
    longest = spec.max_sequence_length()
    if longest is None:
        return None
    readings = spec.forward_passes() or ()
    lengths = {longest[1], *(one.length for one in readings if one.sequences)}
    read = (
        reading_memory(
            model, batch=max(1, spec.batch_tokens // length), length=length, learned=learned
        )
        for length in lengths
        if length
    )
    return max(read, key=lambda memory: memory.peak)


def _forward(size: Parameters, model: ModelConfig, readings: Iterable[ForwardPass]) -> Cost:
    """The cost of reading all of these, forward only."""
    counted = [(length, length * count) for length, count in readings if length * count]
    flops = sum(tokens * flops_per_token(model, length) / 3 for length, tokens in counted)
    return Cost(size, sum(tokens for _, tokens in counted), flops)
