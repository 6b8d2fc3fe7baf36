"""Schedules against Hugging Face's, and which parameters decay."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from gpt2_block import GPT2
from hypothesis import given, settings
from hypothesis import strategies as st
from sections import read_section
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    get_constant_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

from fope_lab.config.options import options_of
from fope_lab.model import ModelConfig
from fope_lab.model.decoder import Decoder
from fope_lab.stages.training import TrainSettings
from trainers.optimizer import SCHEDULES, build_optimizer, decay_groups, learning_rate

PEAK = 3e-3


def train_settings(
    steps: int, warmup: float, final: float, schedule: str, decay: float | None = None
) -> TrainSettings:
    return read_section(
        TrainSettings,
        {
            "tokens": steps,
            "batch_tokens": 1,
            "learning_rate": PEAK,
            "schedule": schedule,
            "warmup": warmup,
            "final_learning_rate": final,
            "decay": decay,
        },
    )


@st.composite
def some_settings(draw: st.DrawFn, schedules: Iterable[str] = SCHEDULES) -> TrainSettings:
    schedule = draw(st.sampled_from(sorted(schedules)))
    warmup = draw(st.floats(0, 1))
    decay = draw(st.floats(0, 1 - warmup)) if schedule == "wsd" else None
    return train_settings(draw(st.integers(1, 300)), warmup, draw(st.floats(0, 1)), schedule, decay)


def scheduler(chosen: TrainSettings, optimizer: torch.optim.Optimizer) -> Any:
    """Hugging Face's of these settings."""
    steps, final = chosen.steps, chosen.final_learning_rate
    warmup = round(chosen.warmup * steps)
    if chosen.schedule == "cosine":
        return get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, warmup, steps, min_lr_rate=final
        )
    decay = min(round((chosen.decay or 0.0) * steps), steps - warmup)
    if decay == 0:
        return get_constant_schedule_with_warmup(optimizer, warmup)
    return get_wsd_schedule(
        optimizer, warmup, decay, num_training_steps=steps, decay_type="linear", min_lr_ratio=final
    )


def hugging_face_rates(chosen: TrainSettings) -> list[float]:
    """The rates that Hugging Face's schedulers give updates 1 … steps.

    Their update 0 has rate 0; ours starts one further on, so that no update is lost.
    """
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    theirs = scheduler(chosen, optimizer)
    rates = []
    for _ in range(chosen.steps):
        optimizer.step()
        theirs.step()
        rates.append(theirs.get_last_lr()[0])
    return rates


@settings(deadline=None)
@given(some_settings(SCHEDULES.keys() - {"linear"}))
def test_schedules_are_hugging_faces(chosen: TrainSettings) -> None:
    found = [learning_rate(step, chosen) for step in range(chosen.steps)]
    # Theirs of wsd warms up from the final rate, ours from 0 as the others.
    first = round(chosen.warmup * chosen.steps) if chosen.schedule == "wsd" else 0
    expected = hugging_face_rates(chosen)
    assert found[first:] == pytest.approx(expected[first:], rel=1e-12, abs=1e-15)


@settings(deadline=None)
@given(some_settings())
def test_a_rate_is_never_above_the_peak_nor_zero_in_the_warm_up(chosen: TrainSettings) -> None:
    rates = [learning_rate(step, chosen) for step in range(chosen.steps)]
    assert all(0 <= rate <= PEAK * (1 + 1e-12) for rate in rates)
    assert all(rate > 0 for rate in rates[: round(chosen.warmup * chosen.steps)])


@settings(deadline=None)
@given(steps=st.integers(1, 300), warmup=st.floats(0, 1))
def test_linear_is_that_of_hugging_faces_trainer(steps: int, warmup: float) -> None:
    """From the update after the warm-up on, which has the whole rate."""
    chosen = train_settings(steps, warmup, 0, "linear")
    first = round(warmup * steps)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    theirs = get_linear_schedule_with_warmup(optimizer, first, steps)
    expected = []
    for _ in range(steps):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    found = [learning_rate(step, chosen) for step in range(steps)]
    assert found[first:] == pytest.approx(expected[first:], rel=1e-12)
    assert first == steps or found[first] == PEAK


def test_wsd_decays_over_a_tenth_of_the_steps_by_default() -> None:
    assert train_settings(100, 0.1, 0.25, "wsd") == train_settings(100, 0.1, 0.25, "wsd", 0.1)


def test_every_schedule_can_be_asked_for() -> None:
    assert set(get_args(get_args(options_of(TrainSettings)["schedule"].annotation)[0])) == set(
        SCHEDULES
    )


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


def test_gpt2s_parameters_decay_as_in_transformers() -> None:
    """Its Trainer leaves out biases and norms, so that the table of positions decays."""
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=32, **GPT2)
    model = Decoder(config, "learned", train_length=16)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, others = (
        {names[id(p)] for p in group["params"]} for group in decay_groups(model, 0.1)
    )
    by_trainer = functools.partial(Trainer.get_decay_parameter_names, None)
    assert set(by_trainer(model)) - {"lm_head.weight"} == decaying  # it is the token table
    assert "position_embeddings.0.by_position" in decaying
    assert decaying | others == set(names.values())
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=32))
    theirs = set(by_trainer(gpt2)) - {"lm_head.weight"}
    assert {"transformer.wte.weight", "transformer.wpe.weight"} <= theirs
    # One matrix of theirs has the rows of three of ours: queries, keys and values.
    assert len(theirs) + 2 * config.num_layers == len(decaying)


@pytest.mark.parametrize("embedding", ["fope", "fox", "selective-rope", "learned"])
def test_muon_has_the_projections_of_the_layers_and_adamw_the_rest(embedding: str) -> None:
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=32, biases=True)
    model = Decoder(config, embedding, train_length=16)
    names = {parameter: name for name, parameter in model.named_parameters()}
    chosen = replace(train_settings(1, 0.0, 0.0, "constant"), optimizer="muon")
    optimizer = build_optimizer(model, chosen)
    first, *others = optimizer.param_groups
    assert {names[p].split(".", 2)[2] for p in first["params"]} == {
        f"{name}.weight"
        for name in (
            *(f"self_attn.{part}_proj" for part in "qkvo"),
            *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
        )
    }
    decays = {names[p] for p in decay_groups(model, 0.1)[0]["params"]}
    for group in optimizer.param_groups:
        assert all((group["weight_decay"] > 0) is (names[p] in decays) for p in group["params"])
    grouped = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(grouped) == len(set(grouped)) == len(names)
    assert "betas" not in first
    assert all(group["betas"] == chosen.betas for group in others)


def test_muon_steps_along_the_gradients_orthogonal_factor() -> None:
    """Against an SVD in float64: as long in every direction, within what five iterations leave
    (Jordan's coefficients end between 0.7 and 1.2), and as large as arXiv 2502.16982 §2.2 says."""
    torch.manual_seed(0)
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, intermediate_size=40, vocab_size=32)
    model = Decoder(config, "rope", train_length=16)
    rate, decay = 0.01, 0.3
    chosen = replace(
        train_settings(1, 0.0, 0.0, "constant"),
        optimizer="muon",
        learning_rate=rate,
        weight_decay=decay,
    )
    optimizer = build_optimizer(model, chosen)
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
        if parameter.ndim == 2:  # whose singular values are all of one order
            left, _, right = torch.linalg.svd(parameter.grad, full_matrices=False)
            parameter.grad = left @ torch.diag(torch.linspace(0.5, 2, right.shape[0])) @ right
    optimizer.step()
    matrices = [n for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("layers")]
    assert len(matrices) == 7
    for name in matrices:
        parameter = model.get_parameter(name)
        left, _, right = torch.linalg.svd(parameter.grad.double(), full_matrices=False)
        change = before[name] * (1 - rate * decay) - parameter.detach().double()
        size = rate * 0.2 * max(parameter.shape) ** 0.5
        along = left.T @ change @ right.T / size
        assert 0.6 < float(along.diagonal().min()) <= float(along.diagonal().max()) < 1.3
        torch.testing.assert_close(
            along, torch.diag(along.diagonal()), rtol=0, atol=0.03, check_dtype=False
        )


def test_muon_needs_a_matrix() -> None:
    config = ModelConfig(num_layers=1, num_heads=2, head_dim=8, vocab_size=32)
    model = Decoder(config, "rope", train_length=16)
    model.layers.requires_grad_(False)
    chosen = replace(train_settings(1, 0.0, 0.0, "constant"), optimizer="muon")
    with pytest.raises(ValueError, match="muon: the model has no matrix to train in its layers"):
        build_optimizer(model, chosen)


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[0].requires_grad_(False)
    groups = build_optimizer(model, train_settings(1, 0.0, 0.0, "constant")).param_groups
    assert [p for group in groups for p in group["params"]] == [model[1].weight, model[1].bias]
