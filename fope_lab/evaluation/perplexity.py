"""Perplexity: exp of the token-weighted mean loss, at several context lengths.

Every token but the first is predicted exactly once, whatever the length, so the numbers of
different lengths are of the same tokens. Documents lie one after the other, an end-of-text token
between them, and windows run over their ends, as in training.

- `chunked`: the text is cut into pieces of `length`, which see nothing of each other, so a
  prediction has half of `length` as context on average (released code of FoPE).
- `sliding`: windows of `length` move by `stride`, and each scores the tokens that none before it
  did, so a prediction has at least `length` − `stride` tokens of context but at the text's very
  beginning (YaRN's script, which however averages windows, not tokens).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.shards import ShardedArray
from fope_lab.evaluation.checkpoint import device_of, load_parent

if TYPE_CHECKING:
    from fope_lab.store import Attempt
    from fope_lab.sweep.stages import Perplexity

LOSS_ROWS = 512  # predictions whose logits are held at once: 100 MB at 50,000 tokens of vocabulary

Tokens = NDArray[Any] | ShardedArray


@dataclass(frozen=True)
class Window:
    """The model reads tokens `start` … `end` − 1; those from `scored` on predict the ones after
    them, up to token `end`."""

    start: int
    scored: int
    end: int


@dataclass(frozen=True)
class PerplexityResult:
    """The summed loss in nats of `count` predicted tokens, at context length `length`."""

    length: int
    loss_sum: float
    count: int

    @property
    def loss(self) -> float:
        """Mean loss of a token, in nats."""
        return self.loss_sum / self.count

    @property
    def perplexity(self) -> float:
        """exp of the mean loss."""
        return math.exp(self.loss)


def perplexity(
    model: nn.Module,
    tokens: Tokens,
    length: int,
    *,
    method: Literal["chunked", "sliding"] = "chunked",
    stride: int | None = None,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda predicted: None,
) -> PerplexityResult:
    """The perplexity of a model on one text.

    `model.hidden(input_ids)` are final states (batch, length, width) and `model.head(states)` their
    logits (…, vocabulary), of which few are held at once. `tokens` (tokens,) is of any integer type
    and may lie on disk: at most about `batch_tokens` of them are in memory. `stride`, for
    `sliding` only, is at most `length`. Raises ValueError if the text is shorter than `length` + 1
    or a loss is not a finite number.
    """
    _check_enough(tokens, length)
    windows = WINDOWS[method](len(tokens), length, stride)
    device = device_of(model)
    total = torch.zeros((), dtype=torch.float64, device=device)
    count = 0
    # Windows of one shape follow one another, so that they can be stacked.
    for _, alike in groupby(windows, key=lambda w: (w.end - w.start, w.end - w.scored)):
        for batch in _batched(alike, max(1, batch_tokens // length)):
            total += _loss_sum(model, tokens, batch, device)
            count += sum(window.end - window.scored for window in batch)
            progress(count)
    loss_sum = float(total)
    if not math.isfinite(loss_sum):
        raise ValueError(f"the loss at length {length} is {loss_sum}: the model is broken there")
    return PerplexityResult(length, loss_sum, count)


def chunked_windows(tokens: int, length: int, stride: int | None) -> Iterator[Window]:
    """Pieces of `length` one after the other, the last one shorter."""
    if stride is not None:
        raise ValueError(f"stride {stride} has no effect with method chunked")
    for start in range(0, tokens - 1, length):
        yield Window(start, start, min(start + length, tokens - 1))


def sliding_windows(tokens: int, length: int, stride: int | None) -> Iterator[Window]:
    """Windows of `length`, each scoring the last `stride` predictions, the first all of its own.

    The last window ends with the text and is as long as the others.
    """
    if stride is None or not 1 <= stride <= length:
        raise ValueError(f"method sliding needs a stride from 1 to length {length}, found {stride}")
    yield Window(0, 0, length)
    for scored in range(length, tokens - 1, stride):
        end = min(scored + stride, tokens - 1)
        yield Window(end - length, scored, end)


WINDOWS: dict[str, Callable[[int, int, int | None], Iterator[Window]]] = {
    "chunked": chunked_windows,
    "sliding": sliding_windows,
}


def _check_enough(tokens: Tokens, length: int) -> None:
    if len(tokens) <= length:
        raise ValueError(
            f"perplexity at length {length} needs at least {length + 1} tokens of text, "
            f"and there are {len(tokens)}"
        )


@torch.inference_mode()
def _loss_sum(model: Any, tokens: Tokens, windows: list[Window], device: torch.device) -> Tensor:
    """The summed loss of windows of one shape, float64."""
    rows = np.stack([tokens[w.start : w.end + 1].astype(np.int64) for w in windows])
    ids = torch.from_numpy(rows).to(device)
    first = windows[0].scored - windows[0].start
    hidden = model.hidden(ids[:, :-1])[:, first:].flatten(0, 1)
    targets = ids[:, first + 1 :].flatten()
    total = torch.zeros((), dtype=torch.float64, device=device)
    for states, target in zip(hidden.split(LOSS_ROWS), targets.split(LOSS_ROWS), strict=True):
        logits = model.head(states).float()
        total += F.cross_entropy(logits, target, reduction="none").double().sum()
    return total


def _batched(windows: Iterator[Window], size: int) -> Iterator[list[Window]]:
    while batch := list(islice(windows, size)):
        yield batch


def run(stage: Perplexity, attempt: Attempt, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Log `perplexity_by_length` and `loss_by_length`, with step = context length."""
    model, tokenizer = load_parent(parents, stage.resources)
    expected = {"tokenizer": tokenizer.identity(), "split": "validation"}
    tokens = PackedCorpus(parents["data.0"], expected).tokens.first(stage.tokens)
    _check_enough(tokens, max(stage.lengths))  # before any of the work
    total = (len(tokens) - 1) * len(stage.lengths)
    results = []
    for index, length in enumerate(stage.lengths):

        def progress(predicted: int, before: int = index * (len(tokens) - 1)) -> None:
            attempt.progress(before + predicted, total)

        result = perplexity(
            model,
            tokens,
            length,
            method=stage.method,
            stride=stage.stride,
            batch_tokens=stage.batch_tokens,
            progress=progress,
        )
        attempt.log(
            length,
            {"perplexity_by_length": result.perplexity, "loss_by_length": result.loss},
        )
        results.append(
            {
                "length": length,
                "perplexity": result.perplexity,
                "loss": result.loss,
                "loss_sum": result.loss_sum,
                "tokens": result.count,
            }
        )
    return {"method": stage.method, "stride": stage.stride, "lengths": results}
