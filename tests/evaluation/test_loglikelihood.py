"""Scores of continuations: one by one, transformers, and a model whose answers are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Halves, llama
from torch import Tensor, nn

from fope_lab.evaluation.scoring.loglikelihood import HEAD_ROWS, Score, score_continuations
from fope_lab.model import Decoder, ModelConfig

VOCABULARY = 32


class Uniform(nn.Module):
    """Gives every token `0` the logit ln `likelier` and all others 0; notes what it is asked."""

    def __init__(self, likelier: float = 3.0) -> None:
        super().__init__()
        self.logit = math.log(likelier)
        self.read: list[tuple[int, ...]] = []
        self.head_rows: list[int] = []

    def hidden(self, ids: Tensor) -> Tensor:
        self.read.append(tuple(ids.shape))
        return torch.zeros(*ids.shape, 1)

    def head(self, hidden: Tensor) -> Tensor:
        self.head_rows.append(hidden[..., 0].numel())
        logits = torch.zeros(*hidden.shape[:-1], VOCABULARY)
        logits[..., 0] = self.logit
        return logits


def some_requests(count: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Contexts and continuations of all lengths, and pairs of them that share a context."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count // 2):
        context = draw.integers(0, VOCABULARY, draw.integers(1, 30)).tolist()
        for _ in range(2):
            found.append((context, draw.integers(0, VOCABULARY, draw.integers(1, 6)).tolist()))
    return found


def close(one: list[Score], other: list[Score]) -> None:
    assert [s.logprob for s in one] == pytest.approx([s.logprob for s in other], abs=2e-5)
    assert [(s.greedy, s.tokens) for s in one] == [(s.greedy, s.tokens) for s in other]


def test_known_probabilities_give_known_scores() -> None:
    requests = [([5], [0, 0]), ([1, 2, 3], [0, 7]), ([0], [9])]
    likely, unlikely = math.log(3 / 34), math.log(1 / 34)
    expected = [(2 * likely, True, 2), (likely + unlikely, False, 2), (unlikely, False, 1)]
    found = score_continuations(Uniform(), requests)
    assert [s.logprob for s in found] == pytest.approx([logprob for logprob, *_ in expected])
    assert [tuple(s)[1:] for s in found] == [tuple(rest) for _, *rest in expected]


def test_a_continuation_of_ten_thousand_tokens_is_summed_without_loss() -> None:
    """A float32 sum of as many terms would be off by 1e-4 and more."""
    [score] = score_continuations(Uniform(), [([1], [0] * 10_000)])
    each = float(torch.tensor(math.log(3)) - torch.tensor([math.log(3)] + [0.0] * 31).logsumexp(-1))
    assert score.logprob == pytest.approx(10_000 * each, rel=1e-12)


@pytest.mark.parametrize("batch_tokens", [1, 64, 16_384])
def test_scores_are_those_of_transformers(batch_tokens: int) -> None:
    model = llama(VOCABULARY)
    requests = some_requests(40)
    expected = []
    with torch.no_grad():
        for context, continuation in requests:
            text = list(context)
            for _ in continuation[:1]:  # what greedy decoding says, for every second request
                if len(expected) % 2:
                    continuation[0] = int(model(torch.tensor([text])).logits[0, -1].argmax())
            if len(expected) % 2:
                del continuation[1:]
            logits = model(torch.tensor([context + continuation])).logits[0].double()
            logits = logits[len(context) - 1 : -1]
            target = torch.tensor(continuation)
            logprob = logits.log_softmax(-1).gather(-1, target[:, None]).sum()
            greedy = bool((logits.argmax(-1) == target).all())
            expected.append(Score(float(logprob), greedy, len(continuation)))
    assert 0 < sum(score.greedy for score in expected) < len(expected)
    close(score_continuations(Halves(model), requests, batch_tokens=batch_tokens), expected)


@pytest.mark.parametrize(
    "embedding", ["rope", "fope", "alibi", "fire", "dynamic-ntk", {"type": "sinusoidal"}]
)
def test_a_batch_gives_what_each_request_gives_alone(embedding: Any) -> None:
    """Also where requests are longer than the training length, which moves dynamic NTK."""
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=VOCABULARY)
    model = Decoder(config, embedding, train_length=8, seed=1).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)  # so that probabilities are far from uniform
    requests = some_requests(40)
    alone = [score_continuations(model, [request])[0] for request in requests]
    assert np.std([score.logprob / score.tokens for score in alone]) > 0.3
    for batch_tokens in (100, 10_000):
        close(score_continuations(model, requests, batch_tokens=batch_tokens), alone)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), min_size=1, max_size=30),
    st.integers(1, 200),
)
def test_memory_is_bounded_and_every_request_is_scored(
    sizes: list[tuple[int, int]], batch_tokens: int
) -> None:
    requests = [([i % VOCABULARY] * context, [0] * more) for i, (context, more) in enumerate(sizes)]
    model, done = Uniform(), []
    found = score_continuations(model, requests, batch_tokens=batch_tokens, progress=done.append)
    assert [score.tokens for score in found] == [more for _, more in sizes]
    assert all(rows * length <= batch_tokens or rows == 1 for rows, length in model.read)
    assert done[-1] == len(requests)
    assert done == sorted(done)
    assert max(model.head_rows) <= HEAD_ROWS


def test_only_predictions_of_continuations_are_computed_and_none_twice() -> None:
    """Five answers of one token to one question are one row, and one prediction."""
    model = Uniform()
    score_continuations(model, [([1, 2, 3], [token]) for token in range(5)])
    assert model.read == [(1, 3)]
    assert model.head_rows == [1]
    model = Uniform()
    score_continuations(model, [([1] * 100, [2, 3]), ([4] * 101, [5])])
    assert model.read == [(2, 101)]
    assert model.head_rows == [3]


@pytest.mark.parametrize(
    ("request_", "name"), [(([], [1]), "context"), (([1], []), "continuation")]
)
def test_nothing_to_score_is_an_error(request_: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"request 1: the {name} has no token"):
        score_continuations(Uniform(), [([1], [1]), request_])


def test_a_broken_model_is_an_error() -> None:
    with pytest.raises(ValueError, match="request 0 is nan"):
        score_continuations(Uniform(math.nan), [([1], [2])])


def test_no_request_has_no_score() -> None:
    assert score_continuations(Uniform(), []) == []
