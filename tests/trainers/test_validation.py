"""Losses on held-out data: which rows, what they leave alone, and the weights chosen by them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from real_training import BYTES, LENGTH, SIZES, RealStage, prepare, pretraining
from said import said
from sections import read_section
from tiny_training import Bigrams, TinyStage, batch, train_settings
from torch import Tensor

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data, parse_data
from fope_lab.data.rows import IGNORED
from fope_lab.data.tasks.posgen import SequenceSet
from fope_lab.model import load_model
from fope_lab.stages.training import Pretrain
from fope_lab.store.root import Store
from trainers.loop import NonFiniteError
from trainers.stage import HeldOut, run
from trainers.workers import WorkerGroup

STEPS = 10


class Member(WorkerGroup):
    """Worker `rank` of `size`, as far as data is concerned."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The held-out parts of a short and of a longer text, as sources 0 and 2."""
    root = tmp_path_factory.mktemp("corpora")
    directories = {}
    for place, count in ((0, 300), (2, 1000)):
        file = root / f"{place}.txt"
        file.write_text("".join(f"{place}{i:06d}\n\n" for i in range(count)))
        directories[f"validation.{place}"] = root / str(place)
        (root / str(place)).mkdir()
        corpus = parse_corpus({"files": str(file)}, root)
        write_packed(root / str(place), corpus, BYTES, "validation")
    return directories


def mixture() -> Data:
    files = {"files": __file__}  # which files is in the directories
    mix = [
        {"corpus": files, "weight": 0.25},
        {"task": "passkey", "digits": 3, "weight": 0.5},
        {"corpus": files, "weight": 0.75},
    ]
    return parse_data({"length": LENGTH, "mix": mix}, Path())


def held_out(
    corpora: dict[str, Path], tokens: int, data: Data | None = None, **options: Any
) -> HeldOut:
    chosen = {"length": LENGTH, "rows": 3, "workers": WorkerGroup()} | options
    return HeldOut(data or mixture(), corpora, BYTES, tokens=tokens, **chosen)


def counted_rows(batches: list[Batch]) -> list[bytes]:
    """The rows with labels that count, as text."""
    rows = [row for one in batches for row in zip(one.input_ids, one.labels, strict=True)]
    return [bytes(ids.tolist()) for ids, labels in rows if (labels != IGNORED).any()]


def windows(directory: Path) -> set[bytes]:
    """All rows of a held-out text."""
    tokens = PackedCorpus(directory, {}).tokens[:]
    starts = range(0, len(tokens) - LENGTH, LENGTH)
    return {bytes(tokens[start : start + LENGTH].tolist()) for start in starts}


def test_rows_are_those_of_the_corpora_in_the_mixtures_proportions(
    corpora: dict[str, Path],
) -> None:
    rows = counted_rows(list(held_out(corpora, 12 * LENGTH).batches()))
    short, long = (windows(corpora[f"validation.{place}"]) for place in (0, 2))
    assert len(rows) == len(set(rows)) == 12  # no passkeys among them
    assert len(short & set(rows)) == 3
    assert len(long & set(rows)) == 9


def test_no_row_is_read_twice_however_many_are_asked_for(corpora: dict[str, Path]) -> None:
    data = held_out(corpora, 10**9)
    rows = counted_rows(list(data.batches()))
    short, long = (windows(corpora[f"validation.{place}"]) for place in (0, 2))
    assert len(rows) == len(set(rows)) == data.total
    # One source is used up, and the other read in proportion.
    assert short <= set(rows) or long <= set(rows)
    assert len(short & set(rows)) == pytest.approx(data.total / 4, abs=1)


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (5, 1), (40, 1), (2, 3), (5, 2)])
def test_any_number_of_workers_reads_the_same_rows(
    corpora: dict[str, Path], rows: int, size: int
) -> None:
    expected = sorted(counted_rows(list(held_out(corpora, 11 * LENGTH).batches())))
    shares = [
        list(held_out(corpora, 11 * LENGTH, rows=rows, workers=Member(rank, size)).batches())
        for rank in range(size)
    ]
    assert len({len(share) for share in shares}) == 1  # or the others would wait for ever
    found = [row for share in shares for row in counted_rows(share)]
    assert sorted(found) == expected


def test_the_training_split_is_refused(corpora: dict[str, Path], tmp_path: Path) -> None:
    data = prepare(tmp_path)
    with pytest.raises(DataError, match=r"prepared with split train.*needs validation"):
        held_out(corpora | {"validation.0": data["data.0"]}, 1000)


def posgen(length: int = 16) -> Data:
    fields = {"task": "posgen", "subtask": "recursive", "modulus": 5, "examples": 50}
    return parse_data({"length": length, **fields}, Path())


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (40, 1), (4, 3)])
def test_a_task_alone_has_its_own_held_out_rows(rows: int, size: int) -> None:
    shares = [
        held_out({}, 10**6, posgen(), length=24, rows=rows, workers=Member(rank, size))
        for rank in range(size)
    ]
    assert [share.total for share in shares] == [62] * size  # a tenth of 5⁴ beginnings
    found = [row for share in shares for row in counted_rows(list(share.batches()))]
    expected = SequenceSet(subtask="recursive", modulus=5).sequences("validation", 62, 24)
    assert sorted(found) == sorted(bytes(row.tolist()) for row in expected)
    assert held_out({}, 100, posgen(), length=24).total == 4


def test_loss_and_accuracy_on_longer_rows_are_the_models(tmp_path: Path) -> None:
    """Of the most accurate model, on all held-out rows of a task."""
    data = {"task": "posgen", "subtask": "cot", "modulus": 5, "examples": 50, "length": 16}
    train = {
        "tokens": 20 * 64,
        "batch_tokens": 64,
        "learning_rate": 1e-2,
        "validate_every": 5,
        "validation_tokens": 62 * 40,
        "validation_length": 40,
        "select": "most-accurate",
    }
    fields = {"kind": "pretrain", "model": "tiny", "embedding": "fope"}
    given = read_section(Pretrain, {**fields, "data": data, "train": train})
    folder = Store(tmp_path).folder("pretrain", "tasks")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(dataclasses.replace(given, model=SIZES), attempt.writer, {}))
    result, checkpoint = said(folder.result()), folder.checkpoint()
    assert result["validation_rows"] == 62
    ids = torch.from_numpy(SequenceSet(subtask="cot", modulus=5).sequences("validation", 62, 40))
    with torch.no_grad():
        scores = load_model(checkpoint.path)(ids).logits[:, 3:-1].double()
    chosen = scores.gather(-1, ids[:, 4:, None])[..., 0]
    expected = float((scores.logsumexp(-1) - chosen).mean())
    assert result["validation_loss"] == pytest.approx(expected, rel=1e-5)
    right = scores.argmax(-1) == ids[:, 4:]
    assert result["validation_token_accuracy"] == pytest.approx(float(right.double().mean()))
    [logged] = [
        row.values["validation_loss"]
        for row in folder.rows()
        if row.step == result["selected_step"] and "validation_loss" in row.values
    ]
    assert logged == result["validation_loss"]


HELD_OUT = tuple(batch(step) for step in range(50, 53))


def mean_loss(weights: dict[str, Tensor]) -> float:
    """Over all labels of HELD_OUT that count, one at a time in float64."""
    logits = {k: v.double() for k, v in weights.items()}
    losses = []
    for one in HELD_OUT:
        for token, label in zip(one.input_ids.flatten(), one.labels.flatten(), strict=True):
            if label != IGNORED:
                scores = logits["embedding"][token] @ logits["weight"] + logits["bias"]
                losses.append(float(scores.logsumexp(0) - scores[label]))
    return math.fsum(losses) / len(losses)


def validating(root: Path, steps: int = STEPS, dropout: float = 0.0, **settings: Any) -> TinyStage:
    chosen = {"validate_every": 2, "validation_tokens": 100, "log_every": 1} | settings
    return TinyStage(root, train_settings(steps, **chosen), dropout, HELD_OUT)


def test_the_validation_loss_is_the_mean_over_all_labels(tmp_path: Path) -> None:
    stage = validating(tmp_path, dropout=0.5)  # which validation goes without
    result = stage.attempt()
    rows = stage.logged("validation_loss")
    assert list(rows) == [2, 4, 6, 8, 10]
    assert rows[10] == pytest.approx(mean_loss(stage.final_weights()), rel=1e-6)
    assert (result["selected_step"], result["optimistic"]) == (10, False)
    assert result["validation_loss"] == rows[10]
    assert result["least_validation_loss"] == min(rows.values())
    assert stage.logged("least_validation_loss") == {10: min(rows.values())}


def test_the_last_step_is_validated_whatever_is_due(tmp_path: Path) -> None:
    stage = validating(tmp_path, validate_every=7)
    stage.attempt()
    assert list(stage.logged("validation_loss")) == [7, 10]


def test_validation_leaves_the_training_as_it_is(tmp_path: Path) -> None:
    plain = TinyStage(tmp_path / "plain", train_settings(STEPS, log_every=1), dropout=0.5)
    plain.attempt()
    stage = validating(tmp_path / "validating", validate_every=1, dropout=0.5)
    stage.attempt()
    assert stage.outcome()[2] == plain.outcome()[2]


def best_in_the_middle(root: Path, **settings: Any) -> TinyStage:
    """A training whose validation loss is least after step 6: by then it begins to diverge."""
    return validating(root, 60, learning_rate=0.3, validate_every=3, checkpoint_every=5, **settings)


def test_the_best_weights_outlive_later_checkpoints(tmp_path: Path) -> None:
    last = best_in_the_middle(tmp_path / "last")
    last.attempt()
    rows = last.logged("validation_loss")
    step = min(rows, key=lambda step: rows[step])
    assert step < 40  # many checkpoints before the end
    stage = best_in_the_middle(tmp_path / "best", select="best")
    result = stage.attempt()
    assert stage.logged("validation_loss") == rows
    assert result["selected_step"] == step
    assert result["validation_loss"] == rows[step]
    assert result["optimistic"] is True
    assert mean_loss(stage.final_weights()) == pytest.approx(rows[step], rel=1e-6)
    checkpoint = stage.folder.checkpoint()
    assert not (checkpoint.path / "best.safetensors").exists()  # they are the model's own now


@pytest.mark.parametrize("select", ["best", "most-accurate"])
def test_the_selected_weights_outlive_every_death(tmp_path: Path, select: str) -> None:
    whole = best_in_the_middle(tmp_path / "whole", select=select)
    assert whole.attempt()["selected_step"] < 60
    stage = best_in_the_middle(tmp_path / "dying", select=select)
    for stop in range(1, 60, 4):
        stage.interrupted_at(stop)
    stage.attempt()
    assert stage.outcome() == whole.outcome()


def test_of_equal_losses_the_first_is_the_best(tmp_path: Path) -> None:
    stage = validating(tmp_path, learning_rate=1e-30, select="best")
    assert stage.attempt()["selected_step"] == 2


class BrokenOutside(Bigrams):
    """Its loss is no number but in training."""

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        output = super().forward(input_ids, **others)
        return output if self.training else output._replace(loss=output.loss * math.nan)


def test_a_validation_loss_that_is_no_number_stops_the_stage(tmp_path: Path) -> None:
    stage = validating(tmp_path, validate_every=6)
    words = "the validation loss is nan at step 6 of 10"
    with pytest.raises(NonFiniteError, match=words) as raised:
        stage.attempt(model=BrokenOutside())
    assert "after step 4" in str(raised.value)


def test_a_stage_validates_on_its_own_corpora(tmp_path: Path) -> None:
    data = prepare(tmp_path)
    settings = {"validate_every": 2, "validation_tokens": 10 * LENGTH, "micro_batch_tokens": 16}
    stage = RealStage(tmp_path / "store", pretraining(3, **settings), data)
    result = stage.attempt()
    checkpoint = stage.folder.checkpoint()
    model = load_model(checkpoint.path)
    text = {"length": LENGTH, "corpus": {"files": __file__}}
    rows = TrainingData(
        parse_data(text, Path()),
        {"data.0": data["validation.0"]},
        BYTES,
        batch_size=10,
        seed=0,
        split="validation",
    ).batch(0)
    with torch.inference_mode():
        logits = model(rows.input_ids).logits.double()
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows.labels.flatten())
    assert result["validation_loss"] == pytest.approx(float(expected), rel=1e-6)


def test_the_first_half_is_what_an_evaluation_of_the_second_does_not_read(tmp_path: Path) -> None:
    """Every row of the validation lies before the tokens that perplexity with second-half reads."""
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{i:06d}\n\n" for i in range(3000)))
    write_packed(tmp_path, parse_corpus({"files": str(file)}, tmp_path), BYTES, "validation")
    data = parse_data({"length": LENGTH, "files": str(file)}, tmp_path)
    packed = PackedCorpus(tmp_path, {})
    tokens, ends = packed.tokens[:].tolist(), packed.middle - LENGTH
    read_before = {tuple(tokens[at : at + LENGTH]) for at in range(0, ends, LENGTH)}

    def rows(first_half: bool) -> set[tuple[int, ...]]:
        held = held_out({"validation.0": tmp_path}, 10**6, data, rows=1, first_half=first_half)
        return {tuple(batch_.input_ids[0].tolist()) for batch_ in held.batches()}

    assert rows(first_half=True) == read_before
    assert len(rows(first_half=False)) >= 2 * len(read_before)
