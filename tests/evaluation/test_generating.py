"""Answers: what a plain loop over whole sequences would write, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from models import Logits
from torch import Tensor, nn

from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.scoring.generating import Answer, answer
from fope_lab.model import Decoder, ModelConfig

BYTE = ByteTokenizer()


def ids(text: str) -> Any:
    return np.array(BYTE.encode(text), np.int64)


class Chain(Logits):
    """After a byte comes the next one of `text`; after its last one, end of text."""

    def __init__(self, text: str, broken: bool = False) -> None:
        super().__init__()
        self.config, self.plans = SimpleNamespace(num_layers=0), ()
        self.next = torch.full((272,), BYTE.eos_id)
        for one, other in zip(text.encode(), text.encode()[1:], strict=False):
            self.next[one] = other
        self.broken = broken

    def hidden(self, ids: Tensor, cache: Any, last: int) -> Tensor:
        states = nn.functional.one_hot(self.next[ids[:, -last:]], 272).float()
        # Second best: an exclamation mark.
        states[..., ord("!")] += 0.5
        return states * float("nan") if self.broken else states


def test_an_answer_ends_with_the_end_of_text_or_the_budget() -> None:
    model = Chain("abcdef")
    assert answer(model, BYTE, [ids("xa")], max_new_tokens=9) == [Answer("bcdef", 6, True)]
    assert answer(model, BYTE, [ids("xa")], max_new_tokens=6) == [Answer("bcdef", 6, True)]
    assert answer(model, BYTE, [ids("xa")], max_new_tokens=5) == [Answer("bcdef", 5, False)]
    assert answer(model, BYTE, [ids("f")], max_new_tokens=5) == [Answer("", 1, True)]


@pytest.mark.parametrize("batch_tokens", [1, 60, 10_000])
def test_answers_are_in_the_order_of_the_prompts(batch_tokens: int) -> None:
    model, seen = Chain("abcdefghij"), []
    prompts = ["xxa", "e", "xxh", "c", "xf", "b"]
    found = answer(
        model,
        BYTE,
        [ids(one) for one in prompts],
        max_new_tokens=20,
        batch_tokens=batch_tokens,
        progress=seen.append,
    )
    texts = ["bcdefghij", "fghij", "ij", "defghij", "ghij", "cdefghij"]
    assert [one.text for one in found] == texts
    assert [one.tokens for one in found] == [len(text) + 1 for text in texts]
    assert seen[-1] == 6
    assert seen == sorted(seen)


def test_a_broken_model_gives_no_answer() -> None:
    with pytest.raises(ValueError, match="model produced NaN logits"):
        answer(Chain("ab", broken=True), BYTE, [ids("a")], max_new_tokens=3)
    with pytest.raises(ValueError, match="empty prompt"):
        answer(Chain("ab"), BYTE, [ids("")], max_new_tokens=3)


@pytest.mark.parametrize("embedding", ["rope", "fope", "alibi"])
def test_a_decoder_writes_what_a_plain_loop_writes(embedding: str) -> None:
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=16, vocab_size=272)
    model = Decoder(config, embedding, train_length=64, seed=3).eval()
    with torch.no_grad():  # an untrained model would repeat one token
        model.lm_head.weight.mul_(30)
    prompts = [ids("one two"), ids("three"), ids("1 2 345"), ids("seven77")]
    found = answer(model, BYTE, prompts, max_new_tokens=12)
    assert [one.text for one in found] == [plain_loop(model, one, 12) for one in prompts]


def plain_loop(model: Decoder, prompt: Sequence[int], budget: int) -> str:
    text = list(prompt)
    while len(text) < len(prompt) + budget:
        token = int(model(torch.tensor([text])).logits[0, -1].argmax())
        if token == BYTE.eos_id:
            break
        text.append(token)
    return BYTE.decode(text[len(prompt) :])
