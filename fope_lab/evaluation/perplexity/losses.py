"""Perplexity of a model on one text: exp of the token-weighted mean loss, at a context length.

Every token but the first is predicted exactly once, whatever the length, so the numbers of
different lengths are of the same tokens. Documents follow one another, an end-of-text token
between them, and windows run over their ends, as in training.

- `chunked`: the text is cut into pieces of `length`, which see nothing of each other, so a
  prediction has half of `length` as context on average (released code of FoPE).
- `sliding`: windows of `length` move by `stride`, and each scores the tokens that none before it
  did, so a prediction has at least `length` − `stride` tokens of context but at the text's very
  beginning (YaRN's script).

The mean is over tokens, or over windows, each with the mean of the tokens that it scores (YaRN's
script): the text's first and last window then weigh as much as others that score more or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from fope_lab.data.packing import ShardedArray
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.scoring.batches import Result, Work, batches_of, one_after_another
from fope_lab.evaluation.scoring.reading import device_of, final_states, pass_over

MOST_LOSS = 700.0  # nats: beyond it perplexity overflows
LOSS_ROWS = 512  # predictions whose logits are held at once: 100 MB at 50,000 tokens of vocabulary

Tokens = NDArray[Any] | ShardedArray


class Window(NamedTuple):
    """The model reads tokens `start` … `end` − 1; those from `scored` on predict the ones after
    them, up to token `end`."""

    start: int
    scored: int
    end: int


@dataclass(frozen=True)
class PerplexityResult:
    """Summed losses in nats at context length `length`.

    `loss_sums` and `counts` (length,) have an entry per position in a window: place i of a
    window predicts from i + 1 tokens of context. `window_loss_sum` adds up the mean losses of
    `windows` windows.
    """

    length: int
    loss_sums: NDArray[np.float64]
    counts: NDArray[np.int64]
    window_loss_sum: float
    windows: int

    @property
    def loss_sum(self) -> float:
        """In nats, of all predicted tokens."""
        return float(self.loss_sums.sum())

    @property
    def count(self) -> int:
        """How many tokens were predicted."""
        return int(self.counts.sum())

    @property
    def loss(self) -> float:
        """Mean loss of a token, in nats."""
        return self.loss_sum / self.count

    @property
    def window_loss(self) -> float:
        """Mean over windows of the mean loss of a token, in nats."""
        return self.window_loss_sum / self.windows

    @property
    def perplexity(self) -> float:
        """exp of the mean loss of a token."""
        return math.exp(self.loss)

    def as_json(self) -> dict[str, float]:
        """The sums of losses and tokens from which either average of the perplexity is computed."""
        return {
            "loss_sum": self.loss_sum,
            "tokens": self.count,
            "window_loss_sum": self.window_loss_sum,
            "windows": self.windows,
            "mean_context": float(self.counts @ np.arange(1, self.length + 1)) / self.count,
        }

    def by_position(self, buckets: int) -> list[PositionBucket]:
        """The losses in so many ranges of positions, whose sizes differ by a token at most."""
        if not 1 <= buckets <= self.length:
            raise ValueError(f"found {buckets} buckets, needs 1 to the length {self.length}")
        ends = [self.length * (index + 1) // buckets for index in range(buckets)]
        return [
            PositionBucket(first + 1, end, float(self.loss_sums[first:end].sum()), int(count))
            for first, end in pairwise([0, *ends])
            if (count := self.counts[first:end].sum())
        ]


@dataclass(frozen=True)
class PositionBucket:
    """The summed loss in nats of the `count` tokens that were predicted from `first_context` to
    `last_context` tokens before them in their window."""

    first_context: int
    last_context: int
    loss_sum: float
    count: int

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss_sum / self.count)


def perplexity(
    model: nn.Module,
    tokens: Tokens,
    length: int,
    *,
    method: Literal["chunked", "sliding"] = "chunked",
    stride: int | None = None,
    prefix: Sequence[int] = (),
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda predicted: None,
    work: Work = one_after_another,
) -> PerplexityResult:
    """The perplexity of a model on one text.

    `model.hidden(input_ids)` are final states (batch, length, width) and `model.head(states)` their
    logits (…, vocabulary), of which few are held at once. `tokens` (tokens,) is of any integer type
    and may lie on disk: at most about `batch_tokens` of them are in memory. Every window begins
    with the tokens of `prefix`, which take places of its `length` and are never predicted.
    `stride`, for `sliding` only, is at most what they leave. `work` gives the results of batches.
    Raises ValueError if the text is shorter than `length` + 1, if the prefix leaves no place, or if
    a loss is not a finite number.
    """
    if len(prefix) >= length:
        message = f"found length {length}, needs more than the {len(prefix)} tokens of the prefix"
        raise ValueError(message)
    if len(tokens) <= length:
        raise ValueError(
            f"perplexity at length {length} needs at least {length + 1} tokens of text, "
            f"and there are {len(tokens)}"
        )
    windows = WINDOWS[method](len(tokens), length - len(prefix), stride)
    device = device_of(model)
    begin = torch.tensor(prefix, dtype=torch.int64, device=device)
    size = max(1, batch_tokens // length)
    batches = [
        batch
        # Windows of one shape follow one another, so that they can be stacked.
        for _, alike in groupby(windows, key=lambda w: (w.end - w.start, w.end - w.scored))
        for batch in batches_of(list(alike), size)
    ]

    def compute(batch: list[Window]) -> Result:
        losses = _losses(model, tokens, batch, begin)
        return losses.sum(0).cpu().numpy(), losses.mean(1).sum().cpu().numpy()

    def skip(batch: list[Window], result: Result | None) -> None:
        pass_over(model, len(batch), len(prefix) + batch[0].end - batch[0].start)

    sums, window_sum = np.zeros(length, np.float64), 0.0
    counts = np.zeros(length, np.int64)
    read = 0
    # Added up in one order, whoever computed them: sums of floating-point numbers depend on it.
    for batch, (of_tokens, of_windows) in zip(batches, work(batches, compute, skip), strict=True):
        first = batch[0].start - len(prefix)
        scores = slice(batch[0].scored - first, batch[0].end - first)
        sums[scores] += of_tokens
        window_sum += float(of_windows)
        counts[scores] += len(batch)
        read += len(batch)
        progress(int(counts.sum()))
    result = PerplexityResult(length, sums, counts, window_sum, read)
    if not result.loss < MOST_LOSS:  # which NaN is not, either
        raise ValueError(
            f"the loss at length {length} is {result.loss:g}: the model is broken there"
        )
    return result


def text_bytes(tokenizer: Tokenizer, tokens: Tokens) -> int:
    """The size in bytes of the text that a model predicts, which is all of it but the first token.
    Documents are decoded one at a time, so that no character is cut in two."""
    ids = np.asarray(tokens[1 : len(tokens)])
    ends = np.flatnonzero(ids == tokenizer.eos_id) + 1
    return sum(tokenizer.text_bytes(document.tolist()) for document in np.split(ids, ends))


def chunked_windows(tokens: int, length: int, stride: int | None) -> Iterator[Window]:
    """Pieces of `length` one after the other, the last one shorter."""
    if stride is not None:
        raise ValueError(f"stride {stride} has no effect with method chunked")
    for start in range(0, tokens - 1, length):
        yield Window(start, start, min(start + length, tokens - 1))


def sliding_windows(tokens: int, length: int, stride: int | None) -> Iterator[Window]:
    """Windows of `length`, each scoring the last `stride` predictions, the first all of its own.
    The last window ends with the text and is as long as the others."""
    if stride is None or not 1 <= stride <= length:
        needs = f"a stride from 1 to the {length} tokens of text in a window"
        raise ValueError(f"method sliding needs {needs}, found {stride}")
    yield Window(0, 0, length)
    for scored in range(length, tokens - 1, stride):
        end = min(scored + stride, tokens - 1)
        yield Window(end - length, scored, end)


WINDOWS: dict[str, Callable[[int, int, int | None], Iterator[Window]]] = {
    "chunked": chunked_windows,
    "sliding": sliding_windows,
}


@torch.inference_mode()
def _losses(model: Any, tokens: Tokens, windows: list[Window], begin: Tensor) -> Tensor:
    """The losses of the scored tokens of windows of one shape, each after the tokens `begin`:
    float64 (windows, scored)."""
    rows = np.stack([tokens[w.start : w.end + 1].astype(np.int64) for w in windows])
    text = torch.from_numpy(rows).to(begin.device)
    ids = torch.cat([begin.expand(len(windows), -1), text], dim=1)
    first = len(begin) + windows[0].scored - windows[0].start
    hidden = final_states(model, ids[:, :-1])[:, first:].flatten(0, 1)
    targets = ids[:, first + 1 :].flatten()
    losses = [
        F.cross_entropy(model.head(states).float(), target, reduction="none").double()
        for states, target in zip(hidden.split(LOSS_ROWS), targets.split(LOSS_ROWS), strict=True)
    ]
    return torch.cat(losses).view(len(windows), -1)
