"""What is read does not depend on how many sequences are read at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sections import read_section

from fope_lab.data.tasks.posgen import generate
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.perplexity.losses import perplexity
from fope_lab.evaluation.retrieval import Passkey
from fope_lab.evaluation.scoring.exact_match import correct_tokens
from fope_lab.evaluation.scoring.loglikelihood import score_continuations
from fope_lab.evaluation.scoring.reading import final_states
from fope_lab.model import Decoder, ModelConfig

PASSKEY = {"from": "m", "lengths": [64], "trials": 30, "form": "symbolic"}
SIZES = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=272)


@pytest.fixture(scope="module")
def model() -> Decoder:
    """Positions are drawn from 1,024, and weigh: without training, weights must be large."""
    torch.manual_seed(0)
    model = Decoder(SIZES, "random-rope", train_length=64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def test_each_sequence_draws_its_own_positions(model: Decoder) -> None:
    ids = torch.arange(64).repeat(2, 1)
    torch.manual_seed(0)
    with torch.inference_mode():
        one, other = final_states(model, ids)
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("kind", ["perplexity", "passkey", "posgen", "continuations"])
def test_the_size_of_a_batch_changes_nothing(model: Decoder, kind: str) -> None:
    text = np.random.default_rng(0).integers(0, 256, 700)
    sequences = generate("cot", 20, 48)
    requests = [(text[i : i + 20], text[i + 20 : i + 23]) for i in range(30)]
    measure: dict[str, Any] = {
        "perplexity": lambda size: perplexity(model, text, 64, batch_tokens=size).loss_sums,
        "passkey": lambda size: (
            read_section(Passkey, PASSKEY)
            .score(model, ByteTokenizer(), 64, "passkey", batch_tokens=size)
            .correct
        ),
        "posgen": lambda size: correct_tokens(model, sequences, given=4, batch_tokens=size),
        "continuations": lambda size: [
            score.logprob for score in score_continuations(model, requests, batch_tokens=size)
        ],
    }
    found = []
    for size in (1, 200, 100_000):
        torch.manual_seed(0)
        found.append(np.asarray(measure[kind](size), np.float64))
    assert np.allclose(found[0], found[1], rtol=1e-4)
    assert np.allclose(found[0], found[2], rtol=1e-4)
