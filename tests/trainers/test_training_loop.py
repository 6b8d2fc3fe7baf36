"""The loop against a float64 AdamW written out by hand, its metrics, and how it fails."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_training import (
    LENGTH,
    ROWS,
    VOCABULARY,
    Bigrams,
    Output,
    TinyStage,
    batch,
    train_settings,
)

from fope_lab.config.processor import choose_device
from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED
from trainers.loop import NonFiniteError

STEPS = 10
Parameters = dict[str, NDArray[np.float64]]


def reference_loss(parameters: Parameters, batch: Batch) -> tuple[float, Parameters]:
    """Mean cross-entropy over the labels that count, and its gradient in closed form."""
    counted = batch.labels.numpy() != IGNORED
    ids, labels = batch.input_ids.numpy()[counted], batch.labels.numpy()[counted]
    hidden = parameters["embedding"][ids]
    logits = hidden @ parameters["weight"] + parameters["bias"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(ids)), labels]).mean()
    error = (shares - np.eye(VOCABULARY)[labels]) / len(ids)
    embedding = np.zeros_like(parameters["embedding"])
    np.add.at(embedding, ids, error @ parameters["weight"].T)
    gradient = {"embedding": embedding, "weight": hidden.T @ error, "bias": error.sum(axis=0)}
    return float(loss), gradient


def reference_training(clip: float) -> tuple[list[float], list[float], Parameters]:
    """Losses, gradient norms and final parameters of AdamW (arXiv 1711.05101, Algorithm 2).

    Warm-up over 2 of 10 updates to 0.05, cosine to a tenth; betas 0.9 and 0.95; decay 0.1 on
    matrices alone; gradients scaled down to a norm of `clip`.
    """
    parameters = {
        name: tensor.detach().numpy().astype(np.float64)
        for name, tensor in Bigrams().named_parameters()
    }
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    losses, norms = [], []
    for t in range(1, STEPS + 1):
        loss, gradient = reference_loss(parameters, batch(t - 1))
        norm = math.sqrt(sum((value**2).sum() for value in gradient.values()))
        losses.append(loss)
        norms.append(norm)
        rate = 0.05 * (t / 2 if t <= 2 else 0.1 + 0.9 * (1 + math.cos(math.pi * (t - 2) / 8)) / 2)
        for name, value in parameters.items():
            slope = gradient[name] * min(1.0, clip / norm)
            first[name] = 0.9 * first[name] + 0.1 * slope
            second[name] = 0.95 * second[name] + 0.05 * slope**2
            corrected = first[name] / (1 - 0.9**t)
            spread = np.sqrt(second[name] / (1 - 0.95**t)) + 1e-8
            decay = 0.0 if name == "bias" else 0.1
            parameters[name] = value - rate * (corrected / spread + decay * value)
    return losses, norms, parameters


@pytest.mark.parametrize("clip", [0.3, 100.0])
def test_the_loop_is_adamw_with_clipping_decay_and_schedule(tmp_path: Path, clip: float) -> None:
    settings = train_settings(STEPS, warmup=0.2, gradient_clip=clip, log_every=1)
    stage = TinyStage(tmp_path, settings)
    stage.attempt()
    losses, norms, parameters = reference_training(clip)
    assert (min(norms) < clip) == (clip > 1)  # both cases are what they should be
    rows = stage.folder.rows()
    assert [row.values["loss"] for row in rows] == pytest.approx(losses, rel=2e-6)
    assert [row.values["gradient_norm"] for row in rows] == pytest.approx(norms, rel=2e-5)
    for name, tensor in stage.final_weights().items():
        np.testing.assert_allclose(tensor.numpy(), parameters[name], rtol=2e-5, atol=2e-6)


def test_rows_hold_the_mean_loss_since_the_row_before(tmp_path: Path) -> None:
    every = TinyStage(tmp_path / "every", train_settings(STEPS, log_every=1))
    every.attempt()
    losses = [row.values["loss"] for row in every.folder.rows()]
    assert len(losses) == STEPS
    third = TinyStage(tmp_path / "third", train_settings(STEPS, log_every=3))
    summary = third.attempt()
    rows = third.folder.rows()
    assert [row.step for row in rows] == [3, 6, 9, 10]
    means = [np.mean(losses[0:3]), np.mean(losses[3:6]), np.mean(losses[6:9]), losses[9]]
    assert [row.values["loss"] for row in rows] == pytest.approx(means, rel=1e-12)
    assert all(row.values["tokens_per_second"] > 0 for row in rows)
    assert summary["loss"] == losses[-1]  # 1/20 of ten steps is less than one
    assert (summary["steps"], summary["tokens"]) == (STEPS, STEPS * ROWS * LENGTH)
    assert summary["tokens_per_second"] == summary["tokens"] / summary["seconds"]


def test_the_final_loss_is_the_mean_of_the_last_twentieth(tmp_path: Path) -> None:
    stage = TinyStage(tmp_path, train_settings(60, log_every=1))
    loss = stage.attempt()["loss"]
    last = [row.values["loss"] for row in stage.folder.rows()][-3:]
    assert loss == pytest.approx(np.mean(last), rel=1e-12)


def test_what_ran_before_in_the_process_changes_nothing(tmp_path: Path) -> None:
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        stage = TinyStage(tmp_path / str(seed), train_settings(6), dropout=0.5)
        stage.attempt()
        assert torch.equal(torch.get_rng_state(), before)
        results.append(stage.final_weights())
    for name, tensor in results[0].items():
        assert torch.equal(tensor, results[1][name])


def test_only_checkpoints_to_go_on_from_hold_optimizer_state(tmp_path: Path) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS))
    stage.interrupted_at(5)
    checkpoint = stage.folder.checkpoint()
    assert checkpoint.step == 4
    assert (checkpoint.path / "training.pt").is_file()
    stage.attempt()
    final = stage.folder.checkpoint()
    assert final.step == STEPS
    assert not (final.path / "training.pt").exists()


class Exploding(Bigrams):
    """Its loss, or only the gradient of it, is infinite from one forward pass on."""

    def __init__(self, at: int, factor: float) -> None:
        super().__init__()
        self.at, self.factor, self.calls = at, factor, 0

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Output:
        output = super().forward(input_ids, **others)
        self.calls += 1
        if self.calls < self.at:
            return output
        if math.isinf(self.factor):
            return Output(loss=output.loss * self.factor)
        output.loss.register_hook(lambda gradient: gradient * math.inf)
        return output


@pytest.mark.parametrize(("factor", "what"), [(math.inf, "loss is inf"), (1.0, "gradient's norm")])
def test_a_loss_that_is_no_number_stops_the_stage(tmp_path: Path, factor: float, what: str) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS))
    with pytest.raises(NonFiniteError) as raised:
        stage.attempt(model=Exploding(6, factor))
    message = str(raised.value)
    checkpoint = stage.folder.checkpoint()
    assert what in message
    assert "step 6 of 10" in message
    assert f"{checkpoint.path} after step 4" in message
    assert not stage.folder.is_done()
    failure = stage.folder.attempts.newest().end
    assert failure["error"] == message


def test_a_loss_that_is_no_number_is_never_saved(tmp_path: Path) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS, log_every=100))
    with pytest.raises(NonFiniteError, match=r"step 3 of 10.*there is no checkpoint before it"):
        stage.attempt(model=Exploding(3, math.inf))
    assert stage.folder.checkpoint() is None


def test_no_gpu_is_taken_unless_asked_for() -> None:
    assert choose_device(0) == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("cuda", "why"), [("13.0", "this process sees none"), (None, "torch .* is built for CPUs")]
)
def test_a_stage_for_a_gpu_does_not_run_on_the_cpu(
    cuda: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(RuntimeError, match=rf"ask for 0\.5 GPU, but {why}"):
        choose_device(0.5)
