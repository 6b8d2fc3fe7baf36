"""What a stage costs before it runs: parameters, tokens, FLOPs, memory from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.model.memory import reading_memory, training_memory
from fope_lab.sweep.stages import Passkey, Perplexity, StageConfig, TrainingConfig


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
        return Cost(size, tokens, flops, _training_memory(spec, model, learned))
    if isinstance(spec, Passkey):
        read = _forward(size, model, [(length, spec.trials) for length in spec.lengths])
        return replace(read, memory=_reading_memory(spec, model, learned))
    if isinstance(spec, Perplexity):
        memory = _reading_memory(spec, model, learned)
        if spec.tokens is None:
            return Cost(size, memory=memory)
        windows = [one for length in spec.lengths for one in _windows(spec, spec.tokens, length)]
        return replace(_forward(size, model, windows), memory=memory)
    return Cost(size)


def _training_memory(spec: TrainingConfig, model: ModelConfig, learned: int) -> int:
    train, resources = spec.train, spec.resources
    share = train.batch_tokens // resources.size
    at_once = min(train.micro_batch_tokens or share, share)
    return training_memory(
        model,
        batch=max(1, at_once // spec.data.length),
        length=spec.data.length,
        precision=train.precision,
        gradient_checkpointing=train.gradient_checkpointing,
        micro_batches=-(-share // at_once),
        learned=learned,
        shards=resources.size if resources.strategy == "fsdp" else 1,
    ).peak


def _reading_memory(spec: Perplexity | Passkey, model: ModelConfig, learned: int) -> int:
    """At the length that needs most: shorter sequences are read more at a time."""
    return max(
        reading_memory(model, batch=batch, length=length, learned=learned).peak
        for length, batch in _batches(spec)
    )


def _batches(spec: Perplexity | Passkey) -> list[tuple[int, int]]:
    """Each length, and how many sequences of it are read at once."""
    return [(length, max(1, spec.batch_tokens // length)) for length in spec.lengths]


def _windows(spec: Perplexity, tokens: int, length: int) -> list[tuple[int, int]]:
    """(tokens, how many) of the windows in which a text is read at a context length.

    The text's last token is predicted and not read.
    """
    read = tokens - 1
    if spec.stride is not None:
        return [(length, 1 + max(0, -(-(read - length) // spec.stride)))]
    return [(length, read // length), (read % length, 1)]


def _forward(size: Parameters, model: ModelConfig, windows: Iterable[tuple[int, int]]) -> Cost:
    """The cost of reading `count` windows of `length` tokens, forward only, for all of them."""
    counted = [(length, length * count) for length, count in windows if length * count]
    flops = sum(tokens * flops_per_token(model, length) / 3 for length, tokens in counted)
    return Cost(size, sum(tokens for _, tokens in counted), flops)
