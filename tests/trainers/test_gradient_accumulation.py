"""The gradient of a step against the mean loss of the whole batch, however it is computed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from real_training import LENGTH, SIZES, RealStage, prepare, pretraining
from sections import read_section
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED
from fope_lab.model.attention import Attention
from fope_lab.model.decoder import Decoder
from fope_lab.stages.training import TrainSettings
from trainers.step import StepRunner
from trainers.workers import WorkerGroup

ROWS = 5
CPU = torch.device("cpu")
OFFSET = {"type": "learned", "num_positions": 3 * LENGTH, "random_offset": True}


def batch(documents: bool = False) -> Batch:
    """Rows whose labels count in very different numbers, so that means of means are wrong."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (ROWS, LENGTH + 1), generator=generator)
    labels = ids[:, 1:].clone()
    for row in range(ROWS):
        labels[row, : 4 * row] = IGNORED
    numbers = (torch.arange(LENGTH) // 5).expand(ROWS, -1) + torch.arange(ROWS)[:, None] % 2
    return Batch(ids[:, :-1], labels, numbers if documents else None)


def train_settings(**changes: Any) -> TrainSettings:
    fields = {"tokens": 100, "batch_tokens": ROWS * LENGTH, "learning_rate": 0.1}
    return read_section(TrainSettings, fields | changes)


def decoder() -> Decoder:
    return Decoder(SIZES, "rope", train_length=LENGTH, seed=4)


def gradients(model: Decoder) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def reference(whole: Batch) -> tuple[float, dict[str, Tensor]]:
    """The mean loss of a batch from all its logits at once, in float64, and its gradient."""
    model = decoder().double()
    logits = model(whole.input_ids, documents=whole.documents).logits
    loss = F.cross_entropy(logits.flatten(0, 1), whole.labels.flatten(), ignore_index=IGNORED)
    loss.backward()
    return float(loss.detach()), gradients(model)


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], share: float) -> None:
    """Each gradient differs by at most `share` of its norm."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.norm() > 0, name
        assert (found[name] - gradient).norm() <= share * gradient.norm(), name


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("micro", [None, 1, 2, 4, 5, 9])
def test_any_micro_batch_gives_the_gradient_of_the_whole_batch(
    micro: int | None, documents: bool
) -> None:
    loss, expected = reference(batch(documents))
    if documents:
        assert loss != pytest.approx(reference(batch())[0], rel=1e-4), "documents matter"
    model = decoder()
    tokens = None if micro is None else micro * LENGTH
    runner = StepRunner(model, train_settings(micro_batch_tokens=tokens), CPU, WorkerGroup())
    assert float(runner.backward(batch(documents))) == pytest.approx(loss, rel=1e-6)
    assert_close(gradients(model), expected, 1e-5)


class OneOf(WorkerGroup):
    """A worker of two, of whom each test runs one at a time: sums are its own."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank


def read_positions(
    workers: WorkerGroup, rows: Batch, embedding: Any = OFFSET, **settings: Any
) -> Tensor:
    """The positions that a step embeds, with the same random state before it."""
    model = Decoder(SIZES, embedding, train_length=LENGTH, seed=4)
    seen: list[Tensor] = []
    model.register_forward_pre_hook(
        lambda _, args, options: seen.append(options["positions"]), with_kwargs=True
    )
    torch.manual_seed(5)
    StepRunner(model, train_settings(**settings), CPU, workers).backward(rows)
    return torch.cat(seen)


def test_offsets_are_drawn_for_each_row_of_the_whole_batch() -> None:
    """However it is split, also among workers; a short row has more room."""
    lengths = torch.tensor([LENGTH, 1, 2, 3, LENGTH])
    whole = dataclasses.replace(batch(), lengths=lengths)
    found = read_positions(WorkerGroup(), whole)
    assert found.shape == (ROWS, LENGTH)
    assert len(found[:, 0].unique()) > 2
    last = (found[:, 0] + lengths - 1).max()
    assert last < 3 * LENGTH
    for micro in (1, 2, 4):
        settings = {"micro_batch_tokens": micro * LENGTH}
        assert torch.equal(read_positions(WorkerGroup(), whole, **settings), found)
        split = read_positions(WorkerGroup(), whole, "random-rope", **settings).view(-1, LENGTH)
        assert (split == read_positions(WorkerGroup(), whole, "random-rope")).all(), "of all rows"
    four = whole.part(slice(4))
    together = read_positions(WorkerGroup(), four)
    halves = [
        read_positions(
            OneOf(rank), four.part(slice(2 * rank, 2 * rank + 2)), batch_tokens=4 * LENGTH
        )
        for rank in range(2)
    ]
    assert torch.equal(torch.cat(halves), together)


def test_dropout_differs_among_micro_batches_and_steps_and_not_among_workers() -> None:
    """A micro-batch has the same dropout, whichever worker computes it."""
    model = Decoder(dataclasses.replace(SIZES, dropout=0.3), "rope", train_length=LENGTH, seed=4)
    alike = batch().part(slice(4))
    alike = Batch(alike.input_ids[:1].repeat(4, 1), alike.labels[:1].repeat(4, 1))
    seen: list[float] = []
    model.register_forward_hook(lambda module, args, output: seen.append(output.loss.item()))

    def of_workers(size: int, micro: int) -> list[float]:
        seen.clear()
        for rank in range(size):
            workers = WorkerGroup() if size == 1 else OneOf(rank)
            chosen = train_settings(batch_tokens=4 * LENGTH, micro_batch_tokens=micro * LENGTH)
            rows = 4 // size
            torch.manual_seed(5)
            runner = StepRunner(model, chosen, CPU, workers)
            for _ in range(2 if size == 1 else 1):
                runner.backward(alike.part(slice(rank * rows, (rank + 1) * rows)))
        return list(seen)

    alone = of_workers(1, 1)
    assert len(set(alone)) == 8  # four rows of two steps
    assert of_workers(2, 1) == alone[:4]


def test_random_positions_of_held_out_data_do_not_depend_on_the_batches() -> None:
    """How many rows are read at once is not in a stage's key."""
    whole, losses = batch(), []
    for rows in (ROWS, 2, 1):
        model = Decoder(SIZES, "random-rope", train_length=LENGTH, seed=4)
        runner = StepRunner(model, train_settings(), CPU, WorkerGroup())
        parts = [slice(start, start + rows) for start in range(0, ROWS, rows)]
        torch.manual_seed(5)
        losses.append(
            runner.loss([Batch(whole.input_ids[part], whole.labels[part]) for part in parts])
        )
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


def test_held_out_data_without_a_label_has_no_loss() -> None:
    whole = batch()
    runner = StepRunner(decoder(), train_settings(), CPU, WorkerGroup())
    with pytest.raises(DataError, match="validation data has no label tokens"):
        runner.loss([Batch(whole.input_ids, torch.full_like(whole.labels, IGNORED))])


class Watching(WorkerGroup):
    """Counts the passes, and those after which gradients are not exchanged yet."""

    def __init__(self) -> None:
        self.accumulated = 0

    @contextlib.contextmanager
    def accumulating(self, module: Any) -> Any:
        self.accumulated += 1
        yield


def test_gradients_are_exchanged_once_a_step() -> None:
    workers = Watching()
    settings = train_settings(micro_batch_tokens=2 * LENGTH)
    StepRunner(decoder(), settings, CPU, workers).backward(batch())
    assert workers.accumulated == 2  # of three micro-batches


def test_a_batch_without_a_label_that_counts_has_no_gradient() -> None:
    model, empty = decoder(), batch()
    empty.labels.fill_(IGNORED)
    assert float(StepRunner(model, train_settings(), CPU, WorkerGroup()).backward(empty)) == 0
    assert all((gradient == 0).all() for gradient in gradients(model).values())


def test_bfloat16_is_for_products_and_not_for_weights() -> None:
    loss, expected = reference(batch())
    model, seen = decoder(), []
    hook = model.layers[0].mlp.register_forward_hook(lambda *args: seen.append(args[2].dtype))
    runner = StepRunner(model, train_settings(precision="bfloat16"), CPU, WorkerGroup())
    found = float(runner.backward(batch()))
    hook.remove()
    assert seen == [torch.bfloat16]
    assert found == pytest.approx(loss, rel=1e-2)
    for parameter in model.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
    assert_close(gradients(model), expected, 0.05)


def losses(stage: RealStage) -> list[float]:
    return [row.values["loss"] for row in stage.folder.rows()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


def test_gradient_checkpointing_changes_no_loss(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    original = Attention.forward

    def counted(self: Attention, *args: Any, **more: Any) -> Tensor:
        passes.append(1)
        return original(self, *args, **more)

    monkeypatch.setattr(Attention, "forward", counted)
    counts, found = [], []
    for wanted in (False, True):
        stage = RealStage(
            tmp_path / str(wanted), pretraining(4, gradient_checkpointing=wanted), data
        )
        passes.clear()
        stage.attempt()
        counts.append(len(passes))
        found.append(losses(stage))
    assert counts == [4 * SIZES.num_layers, 8 * SIZES.num_layers]
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_compiled_it_learns_the_same_and_saves_plain_names(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"model": dataclasses.replace(SIZES, num_layers=1)}
    # Traced as always, but not turned into C++, which takes half a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    plain, compiled = (
        RealStage(
            tmp_path / str(wanted),
            dataclasses.replace(pretraining(3, compile=wanted), **small),
            data,
        )
        for wanted in (False, True)
    )
    plain.attempt()
    compiled.attempt()
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)
    assert compiled.weights().keys() == plain.weights().keys()
