"""What a stage costs: parameters, tokens, FLOPs, and the memory of a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fope_lab.evaluation.base import ModelEvaluation
from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.model.memory import Memory, reading_memory, training_memory
from fope_lab.stages.base import StageConfig
from fope_lab.stages.internal import SwapEmbedding
from fope_lab.stages.training import TrainingConfig
from fope_lab.stages.widths import computed_widths


@dataclass(frozen=True)
class Cost:
    """The cost of a stage; a field is None if only running can tell it. `tokens` is the number that
    the model reads, `flops` those of a training forward and backward or of an evaluation forward,
    `memory` the most bytes of a worker. With `length_groups`, FLOPs are those of the tokens that
    are computed. A perplexity is assumed to reach its limit of tokens."""

    parameters: Parameters | None = None
    tokens: int | None = None
    flops: float | None = None
    memory: int | None = None


def cost_of(spec: StageConfig, model: ModelConfig, embedding_parameters: int) -> Cost:
    """The cost of a stage; `embedding_parameters`, which the embedding learns, count as body."""
    size = parameters(model)
    size = replace(size, body=size.body + embedding_parameters)
    memory = memory_of(spec, model, embedding_parameters)
    cost = Cost(size, memory=memory.peak if memory else None)
    if isinstance(spec, TrainingConfig):
        flops = sum(
            spec.train.steps * rows * width * flops_per_token(model, width)
            for width, rows in computed_widths(spec).items()
        )
        return replace(cost, tokens=spec.train.steps * spec.train.batch_tokens, flops=flops)
    if isinstance(spec, SwapEmbedding):
        return replace(cost, tokens=0, flops=0.0)
    passes = spec.forward_passes() if isinstance(spec, ModelEvaluation) else None
    if passes is None:
        return cost
    read = [(length, length * count) for length, count in passes if length * count]
    flops = sum(tokens * flops_per_token(model, length) / 3 for length, tokens in read)
    return replace(cost, tokens=sum(tokens for _, tokens in read), flops=flops)


def memory_of(spec: StageConfig, model: ModelConfig, embedding_parameters: int) -> Memory | None:
    """The memory of a worker, of an evaluation at the length that needs most; None if unknown."""
    if isinstance(spec, TrainingConfig):
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
    if isinstance(spec, SwapEmbedding):  # reads nothing
        return reading_memory(model, batch=0, length=0, learned=embedding_parameters)
    longest = spec.max_sequence_length() if isinstance(spec, ModelEvaluation) else None
    if longest is None or not isinstance(spec, ModelEvaluation):
        return None
    passes = spec.forward_passes() or ()
    lengths = {longest[1], *(each.length for each in passes if each.sequences)} - {0}
    batches = {length: max(1, spec.batch_tokens // length) for length in lengths}
    peaks = (
        reading_memory(model, batch=batch, length=length, learned=embedding_parameters)
        for length, batch in batches.items()
    )
    return max(peaks, key=lambda memory: memory.peak)
