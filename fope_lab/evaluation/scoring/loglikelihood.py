"""How likely a model finds continuations of contexts, and whether it would have given them.

Questions with several answers, cloze tasks and losses of answers are all read off these scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.batches import Result, Work, one_after_another
from fope_lab.evaluation.scoring.reading import device_of, final_states, pass_over

HEAD_ROWS = 512  # predictions whose logits are held at once: 100 MB at 50,000 tokens of vocabulary

Ids = Sequence[int] | NDArray[np.int64]


class Score(NamedTuple):
    """The log-probability in nats of a continuation of `tokens` tokens, and whether greedy decoding
    gives it."""

    logprob: float
    greedy: bool
    tokens: int


class _Row(NamedTuple):
    """Tokens that the model reads once (length,), and the places and continuations of its
    requests."""

    input_ids: NDArray[np.int64]
    requests: list[tuple[int, NDArray[np.int64]]]


def score_continuations(
    model: Any,
    requests: Sequence[tuple[Ids, Ids]],
    *,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> list[Score]:
    """The score of each request, a context and its continuation, both at least one token long.

    `model.hidden(input_ids)` is (batch, length, …), and `model.head` of a part of it is that part's
    logits (…, vocabulary), which are computed for the predicted tokens only. The log-softmax is
    float32, its sum over a continuation float64. About `batch_tokens` are read at once, in rows of
    similar lengths, padded on the right, where causal attention doesn't see it; models whose
    positions depend on a row's length (`keys_cacheable` False: dynamic NTK, randomised positions)
    read rows of one length only. What several requests have in common up to a last token is read
    once. `progress` takes how many requests are scored, and `work` gives the results of batches.

    Raises ValueError for an empty context or continuation, and for a score that is not a finite
    number; what the model itself raises is an error, never a score.
    """
    rows = _rows(requests)
    # What follows a token can't change the positions of those before.
    padded = all(one.keys_cacheable for one in getattr(model, "position_embeddings", ()))
    batches = list(_batches(rows, batch_tokens, padded=padded))

    def compute(batch: list[int]) -> Result:
        return _score(model, [rows[index] for index in batch])

    def skip(batch: list[int], result: Result | None) -> None:
        longest = max(len(rows[index].input_ids) for index in batch)
        pass_over(model, len(batch), longest)

    found: list[Score | None] = [None] * len(requests)
    done = 0
    for batch, (logprobs, greedy) in zip(batches, work(batches, compute, skip), strict=True):
        asked = [request for index in batch for request in rows[index].requests]
        for (place, tokens), logprob, said in zip(asked, logprobs, greedy, strict=True):
            found[place] = Score(float(logprob), bool(said), len(tokens))
        done += len(asked)
        progress(done)
    return [score for score in found if score is not None]


def _rows(requests: Sequence[tuple[Ids, Ids]]) -> list[_Row]:
    """What there is to read, shortest first: the tokens of a request but its very last."""
    rows: dict[bytes, _Row] = {}
    for place, request in enumerate(requests):
        context, continuation = (np.asarray(ids, np.int64) for ids in request)
        for name, ids in (("context", context), ("continuation", continuation)):
            if not len(ids):
                raise ValueError(f"request {place}: the {name} has no token")
        input_ids = np.concatenate([context, continuation[:-1]])
        row = rows.setdefault(input_ids.tobytes(), _Row(input_ids, []))
        row.requests.append((place, continuation))
    return sorted(rows.values(), key=lambda row: len(row.input_ids))


def _batches(rows: list[_Row], batch_tokens: int, *, padded: bool) -> Iterator[list[int]]:
    batch: list[int] = []
    for index, row in enumerate(rows):
        length = len(row.input_ids)
        full = (len(batch) + 1) * length > batch_tokens
        if batch and (full or not (padded or length == len(rows[batch[0]].input_ids))):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@torch.inference_mode()
def _score(model: Any, rows: list[_Row]) -> Result:
    """The log-probabilities (requests,) of all rows' continuations, and which are greedy."""
    longest = max(len(row.input_ids) for row in rows)
    ids = np.zeros((len(rows), longest), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row.input_ids)] = row.input_ids
    asked = [
        (place, index * longest + len(row.input_ids) - len(continuation), continuation)
        for index, row in enumerate(rows)
        for place, continuation in row.requests
    ]
    # A prediction that several requests ask for, like all first tokens of a row, is computed once.
    places = np.concatenate([start + np.arange(len(tokens)) for _, start, tokens in asked])
    predictions, of = np.unique(places, return_inverse=True)
    targets = np.concatenate([tokens for _, _, tokens in asked])
    device = device_of(model)
    states = final_states(model, torch.from_numpy(ids).to(device)).flatten(0, 1)
    states = states[torch.from_numpy(predictions).to(device)]
    logprobs = np.empty(len(targets), np.float64)
    likeliest = np.empty(len(targets), np.bool_)
    for first in range(0, len(predictions), HEAD_ROWS):
        mine = np.flatnonzero((of >= first) & (of < first + HEAD_ROWS))
        logits = model.head(states[first : first + HEAD_ROWS]).float()
        row_of = torch.from_numpy(of[mine] - first).to(device)
        target = torch.from_numpy(targets[mine]).to(device)
        logprob = logits[row_of, target] - logits.logsumexp(-1)[row_of]
        logprobs[mine] = logprob.double().cpu().numpy()
        likeliest[mine] = (logits.argmax(-1)[row_of] == target).cpu().numpy()
    starts = np.cumsum([0, *(len(tokens) for _, _, tokens in asked[:-1])])
    sums = np.array([of.sum() for of in np.split(logprobs, starts[1:])])
    for (place, _, _), logprob in zip(asked, sums, strict=True):
        if not np.isfinite(logprob):
            raise ValueError(
                f"the log-probability of request {place} is {logprob}: the model is broken there"
            )
    return sums, np.logical_and.reduceat(likeliest, starts)
