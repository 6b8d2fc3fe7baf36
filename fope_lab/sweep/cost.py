"""What a stage costs: parameters, tokens, FLOPs, and the memory of a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fope_lab.embeddings import Embedding
from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.model.memory import Memory, reading_memory, training_memory
from fope_lab.stages.base import StageConfig
from fope_lab.stages.training import TrainingConfig
from fope_lab.stages.widths import computed_widths


@dataclass(frozen=True)
class Cost:
    """The cost of a stage; a field is None if only running can tell it. `tokens` is the number that
    the model reads, `flops` those of a training forward and backward or of an evaluation forward,
    `memory` the most bytes of a worker. With `length_groups`, FLOPs are those of the tokens that
    are computed. A perplexity is assumed to reach its limit of tokens. `learned` is how many of the
    parameters, in the body's, the embedding learns."""

    parameters: Parameters | None = None
    tokens: int | None = None
    flops: float | None = None
    memory: int | None = None
    learned: int = 0


def cost_of(spec: StageConfig, model: ModelConfig, embedding: Embedding, learned: int) -> Cost:
    """The cost of a stage; `learned` is how many parameters the embedding learns."""
    size = parameters(model)
    adapter = spec.train.adapter if isinstance(spec, TrainingConfig) else None
    adapted = None if adapter is None else adapter.parameters(model)
    size = replace(size, body=size.body + learned + (adapted or 0))
    memory = memory_of(spec, model, embedding, learned)
    cost = Cost(size, memory=memory.peak if memory else None, learned=learned)
    if isinstance(spec, TrainingConfig):
        flops = sum(
            spec.train.steps * rows * width * flops_per_token(model, width, embedding, adapted)
            for width, rows in computed_widths(spec).items()
        )
        return replace(cost, tokens=spec.train.steps * spec.train.batch_tokens, flops=flops)
    passes = spec.forward_passes()
    if passes is None:
        return cost
    read = [(length, length * count) for length, count in passes if length * count]
    flops = sum((forward_flops(model, length, tokens, embedding) for length, tokens in read), 0.0)
    return replace(cost, tokens=sum(tokens for _, tokens in read), flops=flops)


def forward_flops(
    model: ModelConfig, length: int, tokens: int = 1, embedding: Embedding | None = None
) -> float:
    """The FLOPs of so many tokens in sequences of a length, without a backward pass."""
    return tokens * flops_per_token(model, length, embedding) / 3


def memory_of(
    spec: StageConfig, model: ModelConfig, embedding: Embedding, learned: int
) -> Memory | None:
    """The memory of a worker, of an evaluation at the length that needs most; None if unknown."""
    if isinstance(spec, TrainingConfig):
        train, resources = spec.train, spec.resources
        at_once = train.micro_batch(resources.size)
        return training_memory(
            model,
            embedding,
            batch=max(1, at_once // spec.data.length),
            length=spec.data.length,
            precision=train.precision,
            gradient_checkpointing=train.gradient_checkpointing,
            micro_batches=-(-train.share(resources.size) // at_once),
            learned=learned,
            shards=resources.size if resources.strategy == "fsdp" else 1,
            adapter=train.adapter,
            optimizer=train.optimizer,
        )
    batches = spec.largest_batches()
    if batches is None:
        return None
    peaks = (
        reading_memory(model, batch=batch, length=length, learned=learned)
        for length, batch in batches
    )
    return max(peaks, key=lambda memory: memory.peak)
