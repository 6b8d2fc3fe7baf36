"""Generation against a loop that reads everything again for each token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cache import CONFIG, build, tokens
from torch import Tensor

from fope_lab.model import Decoder
from fope_lab.model.generation import generate, greedy, sampled


@torch.no_grad()
def read_anew(model: Decoder, ids: Tensor, count: int) -> Tensor:
    for _ in range(count):
        ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(-1)), dim=1)
    return ids


def spread(model: Decoder) -> Decoder:
    """With larger weights, so that the likeliest token is so by far, and changes."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
    return model


@pytest.mark.parametrize("name", ["nope", "sinusoidal", "learned", "rope", "fope", "alibi", "fire"])
def test_greedy_text_is_that_of_reading_anew(name: str) -> None:
    model = spread(build(name))
    prompt = tokens(20)
    text = generate(model, prompt, 25)
    assert torch.equal(text, read_anew(model, prompt, 25))
    assert torch.equal(text[:, :20], prompt)
    assert len(text[:, 20:].unique()) > 3


def test_greedy_text_of_dynamic_ntk_beyond_the_training_length_in_one_layer() -> None:
    model = spread(build("dynamic-ntk", num_layers=1))
    assert torch.equal(generate(model, tokens(20), 60), read_anew(model, tokens(20), 60))


def test_greedy_text_of_positions_drawn_for_each_length() -> None:
    """One layer, where what is kept does not depend on them; both draw the same in turn."""
    model = spread(build("random-rope", num_layers=1))
    texts = []
    for way in (generate, read_anew):
        torch.manual_seed(4)
        texts.append(way(model, tokens(20), 25))
    assert torch.equal(*texts)


def test_rows_end_by_themselves() -> None:
    model = spread(build("rope"))
    prompt = tokens(10, batch=3)
    free = generate(model, prompt, 30)
    # A token that the rows reach at different times.
    firsts = {int(free[0, 15]), int(free[1, 20])}
    text = generate(model, prompt, 30, ends=firsts)
    for row, freely in zip(text, free, strict=True):
        hits = [place for place in range(10, 40) if int(freely[place]) in firsts]
        end = hits[0] if hits else 39
        assert torch.equal(row[: end + 1], freely[: min(end + 1, len(row))])
        assert (row[end:] == row[end]).all()
    two = generate(model, prompt[:2], 30, ends=firsts)
    assert two.shape[1] < 40, "all rows have ended"


def test_a_prompt_alone_and_an_empty_prompt() -> None:
    model = build("rope")
    assert torch.equal(generate(model, tokens(), 0), tokens())
    with pytest.raises(ValueError, match="empty prompt"):
        generate(model, tokens(0), 3)


def test_a_seed_draws_the_same_text_again() -> None:
    model = spread(build("rope"))
    one, again, other = (
        generate(model, tokens(10), 20, choose=sampled(temperature=2.0, seed=seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    before = torch.get_rng_state()
    generate(model, tokens(10), 5, choose=sampled())
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_follow_the_probabilities() -> None:
    """Within four standard deviations of 40,000 draws."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    count = 40_000
    chances = (logits[0] / 2).softmax(-1)
    choose = sampled(temperature=2.0, seed=3)
    found = choose(logits.expand(count, -1)).bincount(minlength=4) / count
    deviation = (chances * (1 - chances) / count).sqrt()
    assert ((found - chances).abs() < 4 * deviation).all()


@given(
    logits=st.lists(st.floats(-5, 5), min_size=2, max_size=12, unique=True),
    top_p=st.floats(0.05, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_only_the_nucleus_is_drawn_from(logits: list[float], top_p: float) -> None:
    chances = torch.tensor(logits).double().softmax(-1)
    ranked = sorted(range(len(logits)), key=lambda token: -chances[token])
    nucleus, mass = set(), 0.0
    for token in ranked:
        if mass >= top_p:
            break
        nucleus.add(token)
        mass += float(chances[token])
    drawn = sampled(top_p=top_p)(torch.tensor(logits).expand(300, -1))
    assert set(drawn.tolist()) <= nucleus
    assert ranked[0] in nucleus


def test_greedy_takes_the_first_of_equals() -> None:
    assert greedy(torch.tensor([[1.0, 3.0, 3.0]])).tolist() == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature: found 0.0, needs a number above 0"),
        ({"temperature": float("nan")}, "temperature: found nan"),
        ({"top_p": 0.0}, "top_p: found 0.0"),
        ({"top_p": 1.5}, "top_p: found 1.5"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampled(**options)


def test_nothing_is_generated_for_training() -> None:
    text = generate(build("rope"), tokens(), 3)
    assert not text.requires_grad
    assert text.dtype == torch.int64
    assert CONFIG.vocab_size > int(text.max())
