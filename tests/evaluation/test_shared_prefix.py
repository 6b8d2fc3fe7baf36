"""Reading what prompts have in common once, against reading each as a whole and generating."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fope_lab.data.tasks.passkey import Trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.embeddings.spec import example
from fope_lab.evaluation.scoring import exact_match as of_exact_match
from fope_lab.evaluation.scoring import reading
from fope_lab.evaluation.scoring.exact_match import exact_match
from fope_lab.evaluation.scoring.reading import (
    PlainReader,
    SharedPrefixReader,
    lexicographic,
    reader_of,
)
from fope_lab.model import Decoder, KeyValueCache, ModelConfig, generate

CONFIG = ModelConfig(num_layers=2, num_heads=2, head_dim=16, num_kv_heads=1, vocab_size=272)
TRAIN_LENGTH = 32
ANEW = ["dynamic-ntk", "random-rope"]
"""Their keys depend on the length that is read."""
KINDS = ["nope", "sinusoidal", "learned", "rope", "fope", "alibi", "kerple", "fire"]
"""One of each kind of the others; model/test_cache.py reads in pieces with all of them."""


def build(name: str) -> Decoder:
    """A model whose next token depends on all that it read."""
    chosen = {"num_positions": 512} if name == "learned" else {}
    if name.startswith("fope") and name != "fope-fs":
        chosen = {"base": 129}
    spec = {**example(name), **chosen}
    model = Decoder(CONFIG, spec, train_length=TRAIN_LENGTH, seed=3).eval()
    with torch.no_grad():
        for layer in model.layers:
            for weight in layer.parameters():
                weight.mul_(8.0 if weight.dim() == 2 else 1.0)
    return model


def answered(model: Decoder, length: int, count: int) -> list[tuple[Trial, bool]]:
    """Prompts and whether greedy generation gives the answer. In every other one the answer is
    what generation gives, or differs from that in its last token."""
    prompts = prompt_form("english", ByteTokenizer())
    found = []
    for index in range(count):
        trial = prompts.trial(length, index)
        size = len(trial.answer_ids)
        prompt = torch.from_numpy(trial.input_ids[None, :-size])
        said = generate(model, prompt, size)[0, -size:].numpy()
        if index % 2:
            answer = said.copy()
            answer[-1] = (answer[-1] + (index % 4 == 3)) % CONFIG.vocab_size
            ids = np.concatenate([trial.input_ids[:-size], answer])
            trial = Trial(ids, answer, trial.depth)
        found.append((trial, trial.answer_ids.tolist() == said.tolist()))
    return found


class Counted:
    """Counts the tokens that a model reads."""

    def __init__(self, model: Decoder) -> None:
        self.tokens = self.most = 0
        hidden = model.hidden

        def counting(ids: Tensor, **options: Any) -> Tensor:
            self.tokens += ids.numel()
            self.most = max(self.most, ids.numel())
            return hidden(ids, **options)

        model.hidden = counting  # type: ignore[method-assign, assignment]


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 50)


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("name", KINDS)
def test_verdicts_are_those_of_plain_reading_and_of_generation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(name)
    judged = [*answered(model, 336, 4), *answered(model, 350, 8)]
    trials, expected = [trial for trial, _ in judged], [right for _, right in judged]
    assert 0 < sum(expected) < len(expected)
    assert isinstance(reader_of(model), SharedPrefixReader)
    counted = Counted(model)
    for batch_tokens in (1, 1100):
        assert exact_match(model, trials, batch_tokens=batch_tokens).tolist() == expected
    shared = counted.tokens / 2
    monkeypatch.setattr(of_exact_match, "reader_of", PlainReader)
    assert exact_match(model, trials).tolist() == expected
    assert shared < 0.7 * (counted.tokens - 2 * shared)


@torch.inference_mode()
@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("name", KINDS)
def test_states_are_those_of_plain_reading(name: str) -> None:
    """Batches whose beginning goes on from the last one's, turns back, and has nothing of it."""
    model = build(name)
    shared, plain = SharedPrefixReader(model), PlainReader(model)
    generator = np.random.default_rng(0)
    text = generator.integers(0, 272, 150)
    other = generator.integers(0, 272, 150)
    for begin, batch, rest in (
        (text[:30], 2, 20),
        (text[:100], 3, 70),
        (text[:150], 1, 1),
        (np.concatenate([text[:60], other[:40]]), 2, 100),
        (text[:100], 2, 3),
        (other[:1], 2, 90),
        (other, 2, 9),
    ):
        rests = np.sort(generator.permutation(272)[:batch])[:, None] + np.zeros(rest, int)
        ids = np.concatenate([np.tile(begin, (batch, 1)), rests], axis=1)
        for last in (1, 6):
            if last < ids.shape[1]:
                found, expected = shared.last_states(ids, last), plain.last_states(ids, last)
                assert found.shape == expected.shape == (batch, last, CONFIG.hidden_size)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ANEW)
def test_what_no_cache_gives_is_read_plainly(name: str) -> None:
    assert isinstance(reader_of(build(name)), PlainReader)
    assert isinstance(reader_of(nn.Identity()), PlainReader)


def test_a_fused_kernel_for_whole_sequences_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "device_of", lambda model: torch.device("cuda"))
    assert isinstance(reader_of(build("alibi")), PlainReader)
    assert isinstance(reader_of(build("rope")), SharedPrefixReader)


def test_batches_and_their_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("rope")
    rooms = []
    repeated = KeyValueCache.repeated

    def watched(self: KeyValueCache, batch: int, *, room: int) -> KeyValueCache:
        assert self.length <= room
        rooms.append(batch * room)
        return repeated(self, batch, room=room)

    monkeypatch.setattr(KeyValueCache, "repeated", watched)
    counted = Counted(model)
    trials = [prompt_form("english", ByteTokenizer()).trial(350, i) for i in range(24)]
    exact_match(model, trials, batch_tokens=2000)
    assert len(rooms) == 5
    assert max(rooms) <= 2000
    assert counted.most <= 2000


def test_a_short_common_beginning_is_read_with_each_prompt() -> None:
    model = build("rope")
    counted = Counted(model)
    ids = np.random.default_rng(0).integers(0, 272, (3, 80))
    ids[:, :9], ids[:, 9] = 7, [1, 2, 3]
    SharedPrefixReader(model).last_states(ids, 2)
    assert counted.tokens == 240


def test_a_failure_leaves_a_cache_that_can_be_used() -> None:
    model = build("rope")
    reader, plain = SharedPrefixReader(model), PlainReader(model)
    ids = np.random.default_rng(0).integers(0, 272, (1, 90))
    with torch.inference_mode():
        reader.last_states(ids[:, :40], 1)
        wrong = ids.copy()
        wrong[0, 70] = 999
        with pytest.raises(IndexError):
            reader.last_states(wrong, 1)
        found, expected = reader.last_states(ids, 1), plain.last_states(ids, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@given(st.lists(st.lists(st.integers(0, 70_000), max_size=5), max_size=9))
def test_prompts_are_sorted_by_their_tokens(prompts: list[list[int]]) -> None:
    order = lexicographic([np.array(prompt, np.int64) for prompt in prompts])
    assert sorted(order) == list(range(len(prompts)))
    assert [prompts[place] for place in order] == sorted(prompts)
