"""Selection: which candidate is chosen, what is left, and that what is reported is unbiased."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sections import read_section

from fope_lab.config.roles import candidate_role
from fope_lab.evaluation.context import Context
from fope_lab.evaluation.posgen import PosGen
from fope_lab.stages.internal import Select
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.checkpoint import damaged_files
from fope_lab.store.root import Store
from trainers.models import SelectionError
from trainers.models import select as run

SEEDS = (3, 5)
RATES = (1e-3, 2e-3, 4e-3)
DATA = {"length": 64, "task": "posgen", "subtask": "cot"}


def select(seed: int = SEEDS[0], by: str = "validation_loss") -> Select:
    return Select(over="train.learning_rate", by=by, values=RATES, seeds=SEEDS, seed=seed)


def of_roles(losses: Sequence[Sequence[float]]) -> dict[str, float]:
    """The losses of values by seeds, by role."""
    return {
        candidate_role(i, seed): loss
        for i, row in enumerate(losses)
        for seed, loss in zip(SEEDS, row, strict=True)
    }


def candidates(root: Path, losses: Sequence[Sequence[float]]) -> dict[str, str]:
    """Finished trainings that measured these losses; returns their keys by role."""
    store, parents = Store.create(root / "store"), {}
    for role, loss in of_roles(losses).items():
        folder = store.folder("pretrain", role.replace(".", "-"))
        with folder.begin("test", {"kind": "pretrain", "config": {"data": DATA}}) as attempt:
            attempt.writer.save_checkpoint(7, lambda at, role=role: write_model(at, role))
            measured = (Measurement(name="validation_loss", value=loss),)
            attempt.finish(ResultRecord(metrics=measured).as_json())
        parents[role] = folder.path.name
    return parents


def write_model(directory: Path, text: str) -> None:
    (directory / "model.safetensors").write_text(text)
    (directory / "config.json").write_text("{}")
    (directory / "training.json").write_text("{}")


def chosen(root: Path, losses: Sequence[Sequence[float]], spec: Select) -> Path:
    """The checkpoint that the stage leaves."""
    parents, store = candidates(root, losses), Store(root / "store")
    request = {"kind": "select", "config": {"seed": spec.seed}, "parents": parents}
    folder = store.folder("select", "chosen")
    with folder.begin("test", request) as attempt:
        attempt.finish(run(spec, attempt.writer, paths(store, parents)))
    return folder.final_checkpoint().path


def paths(store: Store, parents: Mapping[str, str]) -> dict[str, Path]:
    found = {}
    for role, key in parents.items():
        checkpoint = store.folder("pretrain", key).final_checkpoint()
        found[role] = checkpoint.path
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_each_seed_goes_on_with_its_own_model_of_the_value_with_the_least_mean(
    tmp_path: Path, seed: int
) -> None:
    """Under the first seed alone the first value is better, under the second the last."""
    checkpoint = chosen(tmp_path, [(1.0, 4.0), (2.0, 2.0), (4.0, 1.0)], select(seed))
    assert (checkpoint / "model.safetensors").read_text() == f"candidate.1.{seed}"
    assert not (checkpoint / "training.json").exists()
    result = json.loads((checkpoint.parents[1] / "result.json").read_text())
    assert result["numbers"] == {"selected_learning_rate": 2e-3}
    assert result["recorded"]["selected"] == {"value": 2e-3, "index": 1}
    assert [one["validation_loss"] for one in result["recorded"]["means"]] == [2.5, 2.0, 2.5]
    assert result["metrics"] == [], "the loss of the chosen one is too good to be a result"


def test_the_chosen_files_take_no_room_and_can_be_verified(tmp_path: Path) -> None:
    checkpoint = chosen(tmp_path, [(2.0, 2.0), (1.0, 1.0), (3.0, 3.0)], select())
    own = checkpoint / "model.safetensors"
    name = f"candidate-1-{SEEDS[0]}/checkpoint/*/{own.name}"
    source = next((tmp_path / "store/pretrain").glob(name))
    assert own.samefile(source)
    assert damaged_files(checkpoint) == []
    own.write_text("x" * own.stat().st_size)
    assert damaged_files(checkpoint) == [own.name]


def test_an_evaluation_knows_what_the_chosen_model_was_trained_on(tmp_path: Path) -> None:
    checkpoint = chosen(tmp_path, [(2.0, 2.0), (1.0, 1.0), (3.0, 3.0)], select())
    spec = read_section(PosGen, {"from": "x", "subtask": "cot"})
    found = Context(spec, None, {"from": checkpoint}).training_data  # type: ignore[arg-type]
    assert [source.task.canonical()["subtask"] for source in found.mix if source.task] == ["cot"]


def test_a_loss_that_was_not_measured_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="has no least_validation_loss; re-run that stage"):
        chosen(tmp_path, [(1.0, 1.0)] * 3, select(by="least_validation_loss"))


def test_no_finite_loss_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="finite for no value of train"):
        chosen(tmp_path, [(math.nan, 1.0), (1.0, math.inf), (math.inf, math.inf)], select())


LOSS = st.floats(0, 10) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.lists(st.tuples(LOSS, LOSS), min_size=3, max_size=3))
def test_the_first_least_finite_mean_wins(losses: list[tuple[float, float]]) -> None:
    index = select().chosen(of_roles(losses))
    finite = {i: sum(row) for i, row in enumerate(losses) if all(map(math.isfinite, row))}
    if index is None:
        assert not finite
        return
    mean = statistics.fmean(losses[index])
    for i in finite:
        other = statistics.fmean(losses[i])
        assert mean < other or (mean == other and index <= i)


def test_the_text_brings_no_luck_to_what_is_reported_and_the_seeds_do() -> None:
    """Candidates with one true mean, whose seeds train well or badly: beside the true losses of the
    chosen models their evaluation is unbiased, and beside the mean over all seeds it is not.

    The selection is by means of two losses, whose deviation is √((1 + 0.25) / 2); the models have
    a share of 1 / 1.25 of its variance, and so of its luck.
    """
    repeats, text = 4_000, 0.5
    rng = np.random.default_rng(1)
    models = rng.standard_normal((repeats, len(RATES), len(SEEDS)))
    validation = models + text * rng.standard_normal(models.shape)
    evaluation = models + text * rng.standard_normal(models.shape)
    picked = [select().chosen(of_roles(losses.tolist())) for losses in validation]
    rows = np.arange(repeats)
    reported = evaluation[rows, picked].mean(axis=1)
    of_models = reported - models[rows, picked].mean(axis=1)
    assert abs(of_models.mean()) < 4 * of_models.std(ddof=1) / math.sqrt(repeats)
    variance = 1 + text**2
    luck = -3 / (2 * math.sqrt(math.pi)) * math.sqrt(variance / len(SEEDS)) / variance
    assert abs(reported.mean() - luck) < 4 * reported.std(ddof=1) / math.sqrt(repeats)
