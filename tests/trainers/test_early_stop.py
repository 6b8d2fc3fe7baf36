"""Trainings that end at an accuracy: when they end, what they say, and that resuming changes no
bit of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import told
from tiny_training import LENGTH, ROWS, VOCABULARY, Bigrams, TinyStage, batch, train_settings

from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED
from fope_lab.orchestration.trial import Order, run_until_ended
from fope_lab.planning.forecast import workload_of
from fope_lab.stages.metric import ResultRecord
from fope_lab.stages.training import TrainSettings
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from trainers.step import StepRunner
from trainers.workers import WorkerGroup

STEPS, EVERY = 14, 3
DROPOUT = 0.3  # so that the random state matters


def next_tokens(step: int) -> Batch:
    """Batch number `step`, whose labels are a function of the tokens, so that they are learnt."""
    ids = batch(step).input_ids
    return Batch(ids, (ids + 1) % VOCABULARY)


HELD_OUT = tuple(next_tokens(1000 + step) for step in range(4))


def stop_settings(accuracy: float | None, **changes: Any) -> TrainSettings:
    fields = {"learning_rate": 0.2, "validate_every": EVERY, "stop_at_accuracy": accuracy}
    return train_settings(STEPS, **(fields | changes))


def stage(root: Path, accuracy: float | None, **changes: Any) -> TinyStage:
    return TinyStage(root, stop_settings(accuracy, **changes), DROPOUT, HELD_OUT)


class Whole:
    """A training of all steps: what it returned, and its rates and losses by step."""

    def __init__(self, root: Path) -> None:
        one = stage(root, None)
        self.summary = one.attempt(next_tokens)
        self.rates, self.losses = one.logged("learning_rate"), one.logged("loss")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def test_it_ends_at_the_first_validation_that_reaches_the_accuracy(
    tmp_path: Path, whole: Whole
) -> None:
    one = stage(tmp_path, 0.75)
    summary = one.attempt(next_tokens)
    accuracies = one.logged("validation_accuracy")
    *before, last = sorted(accuracies)
    assert before, "it should not be reached at once"
    assert all(accuracies[step] < 0.75 for step in before)
    assert last < STEPS
    assert accuracies[last] >= 0.75
    assert sorted(accuracies) == list(range(EVERY, last + 1, EVERY))
    expected = {
        "steps": last,
        "tokens": last * ROWS * LENGTH,
        "stopped_early": True,
        "validation_accuracy": accuracies[last],
        "selected_step": last,
    }
    assert {name: summary[name] for name in expected} == expected
    assert summary["tokens_per_second"] == summary["tokens"] / summary["seconds"]
    checkpoint = one.folder.checkpoint()
    assert checkpoint.step == last
    # The rate is that of the whole training, and so are the losses, up to the end.
    rates = one.logged("learning_rate")
    assert max(rates) == last
    shared = rates.keys() & whole.rates.keys()
    assert shared
    assert all(rates[step] == whole.rates[step] for step in shared)
    assert all(one.logged("loss")[step] == whole.losses[step] for step in shared)


def test_it_reads_all_tokens_if_the_accuracy_is_not_reached(tmp_path: Path, whole: Whole) -> None:
    one = stage(tmp_path, 1.0)
    one.held_out = tuple(Batch(b.input_ids, b.labels.flip(1)) for b in HELD_OUT)
    summary = one.attempt(next_tokens)
    assert summary["steps"] == STEPS == max(one.logged("validation_accuracy"))
    assert summary["stopped_early"] is False
    assert summary["loss"] == whole.summary["loss"]
    assert "stopped_early" not in whole.summary


def test_an_accuracy_that_is_reached_at_the_last_step_counts(tmp_path: Path) -> None:
    one = stage(tmp_path, 0.75, validate_every=1000)
    summary = one.attempt(next_tokens)
    assert (summary["steps"], summary["stopped_early"]) == (STEPS, True)


@pytest.fixture(scope="module", params=["last", "best"])
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, tuple[Any, ...]]:
    one = stage(tmp_path_factory.mktemp("stopped"), 0.75, select=request.param)
    one.attempt(next_tokens)
    return request.param, one.outcome()


def no_batch(step: int) -> Batch:
    raise AssertionError(f"step {step} was repeated")


@settings(deadline=None, max_examples=12)
@given(
    stops=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=4),
    checkpoint_every=st.integers(1, STEPS + 1),
    before_done=st.booleans(),
)
def test_the_same_bits_whenever_interrupted(
    uninterrupted: tuple[str, tuple[Any, ...]],
    stops: list[int],
    checkpoint_every: int,
    before_done: bool,
) -> None:
    select, expected = uninterrupted
    with tempfile.TemporaryDirectory() as root:
        one = stage(Path(root), 0.75, checkpoint_every=checkpoint_every, select=select)
        for stop in stops:
            one.interrupted_at(stop, next_tokens)
        torch.manual_seed(5)  # another process has another random state
        if before_done:  # the final checkpoint is there, and DONE is not: no step is repeated
            one.attempt(next_tokens, finish=False)
        one.attempt(no_batch if before_done else next_tokens)
        assert one.outcome() == expected


@settings(deadline=None)
@given(st.data())
def test_accuracies_are_the_shares_of_right_tokens_and_of_rows_that_are_all_right(
    data: st.DataObject,
) -> None:
    model = Bigrams()
    labels = st.lists(st.sampled_from([IGNORED, 0, 1, 2]), min_size=3, max_size=3)
    given_labels = data.draw(
        st.lists(st.lists(labels, min_size=1, max_size=4), min_size=1, max_size=3)
    )
    batches = [
        Batch(torch.arange(3 * len(rows)).view(-1, 3) % VOCABULARY, torch.tensor(rows))
        for rows in given_labels
    ]
    logits = model.embedding @ model.weight + model.bias
    follows = logits.argmax(-1).tolist()
    verdicts = []
    for one in batches:
        for ids, wanted in zip(one.input_ids.tolist(), one.labels.tolist(), strict=True):
            asked = [(i, w) for i, w in zip(ids, wanted, strict=True) if w != IGNORED]
            if asked:
                verdicts.append([follows[i] == w for i, w in asked])
    if not verdicts:
        return
    runner = StepRunner(model, stop_settings(1.0), torch.device("cpu"), WorkerGroup())  # type: ignore[arg-type]
    tokens = [right for row in verdicts for right in row]
    assert runner.accuracies(batches) == {
        "validation_accuracy": pytest.approx(sum(map(all, verdicts)) / len(verdicts)),
        "validation_token_accuracy": pytest.approx(sum(tokens) / len(tokens)),
    }


SWEEP = """name: x
stages:
  p: {{kind: pretrain, model: {{num_layers: 1, num_heads: 1, head_dim: 16}}, embedding: nope,
      tokenizer: symbols:bin_majority, data: {data},
      train: {{tokens: 51_200, batch_tokens: 512, learning_rate: 1e-2, {train}}}}}
"""
TASK = "{task: algorithmic, subtask: bin_majority, longest: 2, length: 8}"
STOPPING = "validate_every: 10, validation_tokens: 800, stop_at_accuracy: 1.0"


def test_a_task_is_learnt_and_its_training_ends(tmp_path: Path) -> None:
    """From a sweep file: strings of one or two bits, which are equal. The work is what was done."""
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.format(data=TASK, train=STOPPING))
    [one] = load_sweep(path).stages
    store = Store(tmp_path / "store")
    state = run_until_ended(Order(one.key, {one.key: one}, "t"), store)
    assert state.is_done, state.reason
    content = store.folder(one.kind, one.key).result()
    record = ResultRecord.parse(content)
    steps = record.recorded["steps"]
    assert record.recorded["stopped_early"] is True
    assert 10 <= steps < 100
    assert {m.name: m.value for m in record.metrics}["validation_accuracy"] == 1
    [ran] = store.execution_records()
    work = workload_of(one)
    assert ran["work"]["tokens"] == steps * 512
    assert ran["work"]["flops"] == pytest.approx((work.flops or 0) * steps / 100)


@pytest.mark.parametrize(
    ("data", "train", "expected"),
    [
        (TASK, "stop_at_accuracy: 1.0",
         "p.train.stop_at_accuracy: has no effect: there are no validations without validate"),
        ("{corpus: python-docs, length: 8}", STOPPING,
         "p.train.stop_at_accuracy: validations read the text of data, whose rows no model"),
        (TASK, "select: most-accurate",
         "p.train.validate_every: is missing: select most-accurate compares validations"),
        ("{corpus: python-docs, length: 8}", "select: most-accurate, validate_every: 10",
         "p.train.select: validations read the text of data, and this accuracy is that of"),
        (TASK, "select: most-acurate, validate_every: 10", "did you mean 'most-accurate'?"),
        (TASK, STOPPING.replace("1.0", "1.5"), "stop_at_accuracy: found 1.5, needs"),
        (TASK, STOPPING.replace("1.0", "0"), "stop_at_accuracy: found 0, needs"),
    ],
)  # fmt: skip
def test_wrong_settings(tmp_path: Path, data: str, train: str, expected: str) -> None:
    [found] = told(tmp_path, SWEEP.format(data=data, train=train))
    assert expected in found
