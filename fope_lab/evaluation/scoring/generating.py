"""Answers that a model writes: greedy, token by token, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fope_lab.data.tokenizers.tokenizer import Tokenizer
from fope_lab.evaluation.scoring.batches import Result, Work, batches_of, one_after_another
from fope_lab.evaluation.scoring.reading import device_of, pass_over
from fope_lab.model.generation import generate


class Answer(NamedTuple):
    """What a model wrote: `tokens` new ones, the last of which `ended` it, or else the budget.

    An answer that a text ended may have tokens after that text."""

    text: str
    tokens: int
    ended: bool


def answer(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[NDArray[np.int64]],
    *,
    max_new_tokens: int,
    until: Sequence[str] = (),
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> list[Answer]:
    """What a model writes after each prompt, token ids (length,), in their order.

    An answer ends with the tokenizer's end of text or a text of `until`, which are not part of its
    text, or after `max_new_tokens`.
    Prompts of one length are answered together, with about `batch_tokens` tokens in the cache at
    once; `progress` takes how many are answered, and `work` gives the results of batches. `model`
    has `config.num_layers`, `hidden(input_ids, cache=…)` and `head`, as a decoder does.

    Raises ValueError for an empty prompt and for a model that produces NaN logits; what the model
    itself raises is an error, never an answer.
    """
    texts = [text for text in until if text]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    batches: list[list[int]] = []
    for length, alike in groupby(order, key=lambda i: len(prompts[i])):
        batches += batches_of(list(alike), max(1, batch_tokens // (length + max_new_tokens)))

    def compute(batch: list[int]) -> Result:
        ids = torch.from_numpy(np.stack([prompts[i] for i in batch])).to(device_of(model))
        broken = torch.zeros((), dtype=torch.bool, device=ids.device)

        def likeliest(logits: Tensor) -> Tensor:
            broken.logical_or_(logits.isnan().any())  # looked at in the end: no token waits for it
            return logits.argmax(dim=-1)

        finished = _Finished(tokenizer, texts) if texts else None
        ends = {tokenizer.eos_id}
        rows = generate(model, ids, max_new_tokens, choose=likeliest, ends=ends, finished=finished)
        if bool(broken):
            raise ValueError("model produced NaN logits")
        return (rows[:, ids.shape[1] :].cpu().numpy(),)

    embeddings = getattr(model, "position_embeddings", ())
    draws = any(one.draws_positions for one in embeddings)

    def skip(batch: list[int], result: Result | None) -> None:
        if draws and result is not None:  # each token draws the positions of all up to it
            for new in range(result[0].shape[1]):
                pass_over(model, 1, len(prompts[batch[0]]) + new)

    answers: list[Answer | None] = [None] * len(prompts)
    done = 0
    results = work(batches, compute, skip, divisible=not draws)
    for batch, (rows,) in zip(batches, results, strict=True):
        for place, row in zip(batch, rows.tolist(), strict=True):
            answers[place] = _answer(tokenizer, row, texts)
        done += len(batch)
        progress(done)
    return [one for one in answers if one is not None]


class _Finished:
    """Which rows of new tokens (batch, new) hold one of some texts."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer, self._texts = tokenizer, texts
        self._longest = max(len(text.encode()) for text in texts)  # in tokens, at the most

    def __call__(self, rows: Tensor) -> Tensor:
        found = [
            self._has_one(row[-self._longest :]) and self._has_one(row) for row in rows.tolist()
        ]
        return torch.tensor(found, device=rows.device)

    def _has_one(self, ids: Sequence[int]) -> bool:
        text = self._tokenizer.decode(ids)
        return any(one in text for one in self._texts)


def _answer(tokenizer: Tokenizer, row: Sequence[int], until: Sequence[str]) -> Answer:
    ended = tokenizer.eos_id in row
    tokens = row.index(tokenizer.eos_id) + 1 if ended else len(row)
    unsaid = {tokenizer.eos_id, tokenizer.pad_id, *tokenizer.prefix_ids}
    text = tokenizer.decode([token for token in row[:tokens] if token not in unsaid])
    stopped = any(one in text for one in until)
    for one in until:
        text = text.partition(one)[0]
    return Answer(text, tokens, stopped or ended)
