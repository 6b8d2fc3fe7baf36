"""Groups of gloo workers against one worker alone: DDP, and FSDP2, on one and the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
import torch
from group_training import HALF, STEPS, Case, Trained, gone_on, group, train
from processes import start

from fope_lab.model.adapter import Adapter, Projection
from fope_lab.stages.training import TrainSettings
from trainers.step import exchange_precision
from trainers.workers import FLOAT32, STRATEGIES, Precision, WorkerGroup

T = TypeVar("T")
CASES = {
    "plain": Case("fope"),
    "learned": Case("kerple", sizes=(("tie_embeddings", True), ("qk_norm", "rms")), goes_on=True),
    "bfloat16": Case(
        "rope",
        sizes=(("num_kv_heads", 1), ("norm", "layer")),
        bfloat16=True,
        exchange=Precision(torch.bfloat16, torch.float32),
        tolerance=0.02,
    ),
    "bfloat16-sums": Case(
        "fope",
        sizes=(("qk_norm", "rms"),),
        gradient_checkpointing=True,
        bfloat16=True,
        exchange=Precision(torch.bfloat16, torch.bfloat16),
        tolerance=0.02,
    ),
    "frozen": Case(
        "fire", frozen=("embed_tokens", "layers.0"), gradient_checkpointing=True, goes_on=True
    ),
}
CASES["gates"] = Case(  # which see hidden states, and have parameters beside the layers'
    {
        "type": "layered",
        "pattern": [{"embedding": "fox", "window": 5}, {"type": "path", "query_scale": "ssmax"}],
    },
    gradient_checkpointing=True,
    goes_on=True,
)
CASES["adapters"] = Case(
    adapter=Adapter(rank=4, alpha=16.0, targets=get_args(Projection)),
    gradient_checkpointing=True,
    goes_on=True,
)
CASES["muon"] = Case(  # which orthogonalises in bfloat16
    {"type": "layered", "pattern": ["fox", "fope"]},
    optimizer="muon",
    tolerance=0.02,
    goes_on=True,
)
WAYS = [(name, strategy) for name in CASES for strategy in STRATEGIES]
TWO_HALVES = [(name, strategy) for name, strategy in WAYS if CASES[name].goes_on]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a single worker left, and what two did."""
    folder = tmp_path_factory.mktemp("group")
    for name, case in CASES.items():
        torch.save(train(WorkerGroup(), case, 0, HALF), folder / f"{name}.single.half")
        torch.save(train(WorkerGroup(), case, 0, STEPS), folder / f"{name}.single")
    start(group, 2, folder, CASES, count=2)
    return folder


def trained(folder: Path, *name: str) -> Trained:
    left = torch.load(folder / ".".join(name), weights_only=False)
    assert isinstance(left, Trained)
    return left


def without_noise(values: Mapping[str, T]) -> dict[str, T]:
    """All but FIRE's head_bias: it is the same for all keys, so its gradient is rounding alone."""
    return {name: value for name, value in values.items() if not name.endswith("head_bias")}


def assert_same(found: Trained, expected: Trained, tolerance: float) -> None:
    steps = len(found.losses)
    assert found.losses == pytest.approx(expected.losses[-steps:], abs=tolerance)
    assert found.norms == pytest.approx(expected.norms[-steps:], abs=tolerance)
    # Adam divides by the size of the gradient, and so enlarges what is small in it.
    torch.testing.assert_close(
        without_noise(found.weights),
        without_noise(expected.weights),
        rtol=0.0,
        atol=max(1e-3, tolerance),
    )


@pytest.mark.parametrize(("name", "strategy"), WAYS)
def test_two_workers_train_as_one_does(folder: Path, name: str, strategy: str) -> None:
    found, expected = trained(folder, name, strategy), trained(folder, name, "single")
    assert expected.losses[-1] < expected.losses[0] - 0.1
    assert max(expected.norms) > 0.5, "nothing was ever clipped"
    assert_same(found, expected, CASES[name].tolerance)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.bfloat16])
def test_weights_that_are_gathered_in_bfloat16_give_the_same_losses(
    folder: Path, name: str
) -> None:
    """Autocast would have rounded them in the same way."""
    found, expected = trained(folder, name, "fsdp"), trained(folder, name, "single")
    assert found.losses[0] == pytest.approx(expected.losses[0], abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_fsdp_exchanges_the_layers_matrices_as_they_are_used(folder: Path, name: str) -> None:
    exchanged = torch.load(folder / f"{name}.exchanged", weights_only=False)
    plain = torch.load(folder / "plain.exchanged", weights_only=False)
    for exchange, wanted in zip(
        ("all_gather_single", "reduce_scatter_single"), CASES[name].exchange, strict=True
    ):
        types = {dtype for kind, dtype in exchanged if kind == exchange}
        assert types == {wanted, torch.float32}, "the root is float32"
    assert {dtype for _, dtype in plain} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, FLOAT32),
        ({"precision": "bfloat16"}, Precision(torch.bfloat16, torch.bfloat16)),
        (
            {"precision": "bfloat16", "micro_batch_tokens": 64},
            Precision(torch.bfloat16, torch.float32),
        ),
        ({"precision": "bfloat16", "micro_batch_tokens": 128}, Precision(*[torch.bfloat16] * 2)),
        ({"precision": "bfloat16", "length_groups": 2}, Precision(torch.bfloat16, torch.float32)),
    ],
)
def test_gradients_that_add_up_over_parts_are_exchanged_in_float32(
    settings: dict[str, Any], expected: Precision
) -> None:
    train = TrainSettings(tokens=256, batch_tokens=256, learning_rate=0.1, **settings)
    assert exchange_precision(train, workers=2) == expected


@pytest.mark.parametrize(("name", "strategy"), WAYS)
def test_what_two_workers_save_has_the_form_of_one(folder: Path, name: str, strategy: str) -> None:
    found, expected = trained(folder, name, strategy), trained(folder, name, "single")
    assert list(found.weights) == list(expected.weights)
    assert found.optimizer.keys() == expected.optimizer.keys()
    for parameter, values in without_noise(expected.optimizer).items():
        assert type(found.optimizer[parameter]) is dict
        for key, value in values.items():
            other = found.optimizer[parameter][key]
            assert type(other) is type(value)
            assert (other.shape, other.dtype) == (value.shape, value.dtype)


@pytest.mark.parametrize("origin", ["single", *STRATEGIES])
@pytest.mark.parametrize(("name", "strategy"), TWO_HALVES)
def test_two_workers_go_on_from_what_any_group_saved(
    folder: Path, name: str, strategy: str, origin: str
) -> None:
    found = trained(folder, name, strategy, f"from-{origin}")
    assert_same(found, trained(folder, name, "single"), CASES[name].tolerance)


@pytest.mark.parametrize(("name", "strategy"), TWO_HALVES)
def test_one_worker_goes_on_from_what_two_saved(folder: Path, name: str, strategy: str) -> None:
    start = trained(folder, name, strategy, "half")
    found = train(WorkerGroup(), CASES[name], HALF, STEPS, start)
    assert_same(found, trained(folder, name, "single"), CASES[name].tolerance)


def test_one_worker_goes_on_to_the_bit(folder: Path) -> None:
    found = train(
        WorkerGroup(), CASES["plain"], HALF, STEPS, trained(folder, "plain", "single", "half")
    )
    expected = trained(folder, "plain", "single")
    assert found.losses == expected.losses[HALF:]
    for name, weight in expected.weights.items():
        assert torch.equal(found.weights[name], weight)


def test_the_state_of_other_parameters_is_refused(folder: Path) -> None:
    start = trained(folder, "learned", "ddp", "half")
    start.optimizer = {"norm.wait": {}, **start.optimizer}
    with pytest.raises(ValueError, match=r"another model's: 1 of its .* such as norm\.wait"):
        train(WorkerGroup(), CASES["learned"], HALF, STEPS, start)


def test_three_workers_go_on_to_the_bit(tmp_path: Path) -> None:
    """Of two, the order in which their gradients are added up can't matter."""
    start(gone_on, 3, tmp_path, CASES["plain"], count=3)
    whole, rest = trained(tmp_path, "whole"), trained(tmp_path, "rest")
    assert rest.losses == whole.losses[HALF:]
    assert rest.norms == whole.norms[HALF:]
    assert all(torch.equal(rest.weights[name], one) for name, one in whole.weights.items())
