"""Schedules against Hugging Face's, and which parameters decay."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
)

from fope_lab.model import ModelConfig
from fope_lab.model.decoder import Decoder
from fope_lab.sweep.stages import TrainSettings
from trainers.optimizer import SCHEDULES, build_optimizer, decay_groups, learning_rate

PEAK = 3e-3
settings_and_steps = st.tuples(
    st.integers(1, 300), st.floats(0, 1), st.floats(0, 1), st.sampled_from(sorted(SCHEDULES))
)


def train_settings(steps: int, warmup: float, final: float, schedule: str) -> TrainSettings:
    return TrainSettings.model_validate(
        {
            "tokens": steps,
            "batch_tokens": 1,
            "learning_rate": PEAK,
            "schedule": schedule,
            "warmup": warmup,
            "final_learning_rate": final,
        }
    )


def hugging_face_rates(steps: int, warmup_steps: int, final: float, schedule: str) -> list[float]:
    """The rates that Hugging Face's schedulers give updates 1 … steps.

    Their update 0 has rate 0; ours starts one further on, so that no update is lost.
    """
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    if schedule == "cosine":
        scheduler = get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, warmup_steps, steps, min_lr_rate=final
        )
    else:
        scheduler = get_constant_schedule_with_warmup(optimizer, warmup_steps)
    rates = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    return rates


@settings(deadline=None)
@given(settings_and_steps)
def test_schedules_are_hugging_faces(case: tuple[int, float, float, str]) -> None:
    steps, warmup, final, schedule = case
    expected = hugging_face_rates(steps, round(warmup * steps), final, schedule)
    chosen = train_settings(steps, warmup, final, schedule)
    found = [learning_rate(step, steps, chosen) for step in range(steps)]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-18)


@settings(deadline=None)
@given(settings_and_steps)
def test_a_rate_is_never_above_the_peak_nor_zero_in_the_warm_up(
    case: tuple[int, float, float, str],
) -> None:
    steps, warmup, final, schedule = case
    chosen = train_settings(steps, warmup, final, schedule)
    rates = [learning_rate(step, steps, chosen) for step in range(steps)]
    assert all(0 <= rate <= PEAK * (1 + 1e-12) for rate in rates)
    assert all(rate > 0 for rate in rates[: round(warmup * steps)])


def test_the_last_update_uses_the_final_rate() -> None:
    chosen = train_settings(100, 0.1, 0.25, "cosine")
    assert learning_rate(9, 100, chosen) == PEAK
    assert learning_rate(99, 100, chosen) == pytest.approx(PEAK / 4, rel=1e-12)
    assert learning_rate(99, 100, train_settings(100, 0.1, 0.25, "constant")) == PEAK


def test_every_schedule_can_be_asked_for() -> None:
    assert set(get_args(TrainSettings.model_fields["schedule"].annotation)) == set(SCHEDULES)


@pytest.mark.parametrize("tied", [False, True])
def test_matrices_decay_and_vectors_do_not(tied: bool) -> None:
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=32, tie_embeddings=tied)
    model = Decoder(config, "rope", train_length=16)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, others = decay_groups(model, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {names[id(p)].split(".")[-2] for p in others["params"]} == {
        "input_layernorm",
        "post_attention_layernorm",
        "norm",
    }
    grouped = [id(parameter) for group in (decaying, others) for parameter in group["params"]]
    assert sorted(grouped) == sorted(names)


@pytest.mark.parametrize("embedding", ["fire", "kerple", {"type": "fope", "learned": True}])
def test_what_a_position_embedding_learns_does_not_decay(embedding: Any) -> None:
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=32)
    model = Decoder(config, embedding, train_length=16)
    _, others = decay_groups(model, 0.1)
    learned = {id(parameter) for parameter in model.position_embeddings.parameters()}
    assert learned
    assert learned <= {id(parameter) for parameter in others["params"]}


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[0].requires_grad_(False)
    groups = build_optimizer(model, train_settings(1, 0.0, 0.0, "constant")).param_groups
    assert [p for group in groups for p in group["params"]] == [model[1].weight, model[1].bias]
