"""What a stage costs before it runs: parameters, tokens and FLOPs from its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fope_lab.model.config import ModelConfig, Parameters, flops_per_token, parameters
from fope_lab.sweep.stages import Passkey, Perplexity, StageConfig, TrainingConfig


@dataclass(frozen=True)
class Cost:
    """Parameters of the model, tokens that it reads, and FLOPs; None where nothing is known.

    A training stage counts forward and backward, an evaluation forward only. The tokens of a
    perplexity stage without a limit are its corpus's, which is known once that is prepared; with a
    limit, the corpus is taken to have as many.
    """

    parameters: Parameters | None = None
    tokens: int | None = None
    flops: float | None = None


def estimate(spec: StageConfig, model: ModelConfig, learned: int) -> Cost:
    """The cost of a stage on a model whose position embedding learns `learned` parameters, which
    count as body."""
    size = parameters(model)
    size = replace(size, body=size.body + learned)
    if isinstance(spec, TrainingConfig):
        tokens = spec.train.steps * spec.train.batch_tokens
        return Cost(size, tokens, tokens * flops_per_token(model, spec.data.length))
    if isinstance(spec, Passkey):
        return _forward(size, model, [(length, spec.trials) for length in spec.lengths])
    if isinstance(spec, Perplexity) and spec.tokens is not None:
        windows = [one for length in spec.lengths for one in _windows(spec, spec.tokens, length)]
        return _forward(size, model, windows)
    return Cost(size)


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
