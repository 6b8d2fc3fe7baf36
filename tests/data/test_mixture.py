"""Training batches: what is in them, in which order, and who gets which part."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.mixture import Mixture, TrainingData
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import data_json_schema, parse_data
from fope_lab.data.rows import IGNORED, ExampleRows, TextRows
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

BYTE = ByteTokenizer()
MIX = {
    "length": 40,
    "mix": [
        {"corpus": "python-docs", "weight": 0.5},
        {"corpus": "python-docstrings", "weight": 0.2},
        {"task": "passkey", "weight": 0.3},
    ],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, few_modules: None) -> dict[str, Path]:
    """The train splits of the two corpora of MIX."""
    directories = {}
    for index, name in enumerate(("python-docs", "python-docstrings")):
        directories[f"data.{index}"] = tmp_path_factory.mktemp(name)
        corpus = parse_corpus(name, Path())
        write_packed(directories[f"data.{index}"], corpus, BYTE, "train")
    return directories


def make(prepared: dict[str, Path], spec: Any = MIX, **options: Any) -> TrainingData:
    data = parse_data(spec, Path())
    return TrainingData(data, prepared, BYTE, **{"batch_size": 12, "seed": 3, **options})


WEIGHTS = st.lists(st.integers(1, 20).map(lambda w: w / 10), min_size=1, max_size=4)


@given(WEIGHTS, st.integers(0, 3000), st.integers(1, 40), st.integers(1, 40))
def test_any_rows_of_a_mixture_are_those_of_the_whole(
    weights: list[float], first: int, count: int, more: int
) -> None:
    mixture = Mixture(weights)
    whole, nothing_before = mixture.assign(0, first + count + more)
    part, before = mixture.assign(first, count)
    assert nothing_before == [0] * len(weights)
    assert part.tolist() == whole[first : first + count].tolist()
    assert before == [int((whole[:first] == i).sum()) for i in range(len(weights))]


@given(WEIGHTS)
def test_every_start_of_a_mixture_has_each_sources_share(weights: list[float]) -> None:
    sources, _ = Mixture(weights).assign(0, 500)
    total = sum(Fraction(w) for w in weights)
    for index, weight in enumerate(weights):
        taken = np.cumsum(sources == index)
        exact = np.arange(1, 501) * float(Fraction(weight) / total)
        assert np.abs(taken - exact).max() <= index + 1 + 1e-9


def test_steps_and_seeds_have_batches_of_their_own(prepared: dict[str, Path]) -> None:
    first, other_seed = make(prepared), make(prepared, seed=4)
    batch = first.batch(0)
    assert batch.input_ids.shape == batch.labels.shape == (12, 40)
    assert batch.input_ids.dtype == batch.labels.dtype == torch.int64
    for other in (first.batch(1), other_seed.batch(0)):
        assert not torch.equal(batch.input_ids, other.input_ids)


def test_a_batch_counts_the_tokens_before_the_padding(prepared: dict[str, Path]) -> None:
    batch = make(prepared).batch(0)
    assert batch.lengths is not None
    read = torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]
    assert (batch.input_ids[~read] == BYTE.pad_id).all()
    assert (batch.labels[~read] == IGNORED).all()
    assert (batch.lengths < batch.input_ids.shape[1]).any()
    assert (batch.lengths == batch.input_ids.shape[1]).any()


def test_a_batch_must_be_divisible(prepared: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="12 sequences can't be divided among 5 workers"):
        make(prepared, world_size=5)


def test_the_mixture_is_by_tokens(prepared: dict[str, Path]) -> None:
    data = make(prepared)
    rows = torch.cat([data.batch(step).labels for step in range(100)])
    text = (rows != IGNORED).all(1).float().mean()
    assert abs(float(text) - 0.5) < 0.01


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.25)])
def test_by_epochs_each_corpus_is_read_through_as_often_as_its_weight_says(
    prepared: dict[str, Path], weights: tuple[float, float]
) -> None:
    """Until the first has been read once, counted by the rows themselves."""
    corpora = ("python-docs", "python-docstrings")
    mix = [{"corpus": c, "weight": w} for c, w in zip(corpora, weights, strict=True)]
    data = make(prepared, {"length": 256, "mix": mix, "weights": "epochs", "pack": True})
    text, pairs = data.sources
    assert isinstance(pairs, ExampleRows)
    assert text.epoch
    assert pairs.epoch
    rows = text.epoch + round(weights[1] * pairs.epoch)
    of_each = np.bincount(data.mixture.assign(0, rows)[0], minlength=2)
    assert np.abs(of_each - [text.epoch, weights[1] * pairs.epoch]).max() <= 2
    read = pairs.rows(0, int(of_each[1])).documents
    assert read is not None
    packed = int(read.max(axis=1).sum())  # padding has the number after that of the last example
    assert packed == pytest.approx(weights[1] * pairs.examples, rel=0.03)


def test_labels_are_the_next_tokens(prepared: dict[str, Path]) -> None:
    batch = make(prepared).batch(0)
    has_loss = batch.labels[:, :-1] != IGNORED
    assert torch.equal(batch.labels[:, :-1][has_loss], batch.input_ids[:, 1:][has_loss])
    assert 0.3 < has_loss.float().mean() < 0.9


def test_an_epoch_predicts_every_token_once(pack: Callable[[str], PackedCorpus]) -> None:
    packed = pack("".join(chr(65 + i) for i in range(50)))  # 51 tokens, all different
    rows = TextRows(packed, 5, (0, 0))
    epochs = []
    for epoch in range(3):
        ids, labels, documents, _ = rows.rows(epoch * 10, 10)
        assert labels is ids
        assert documents is None
        assert sorted(labels[:, 1:].ravel().tolist()) == packed.tokens[1:51].tolist()
        epochs.append(ids.tolist())
    assert epochs[0] != epochs[1] != epochs[2]
    across = rows.rows(7, 16)
    assert across.ids.tolist() == epochs[0][7:] + epochs[1] + epochs[2][:3]


def test_data_that_can_give_no_row_is_one_clear_error(
    prepared: dict[str, Path], pack: Callable[[str], PackedCorpus]
) -> None:
    packed = pack("four")
    assert len(TextRows(packed, 4, (0, 0)).rows(0, 3).ids) == 3
    with pytest.raises(DataError, match="has 5 tokens; a length of 5 needs at least 6"):
        TextRows(packed, 5, (0, 0))
    with pytest.raises(DataError, match="holds plain text; needs pairs or chats"):
        ExampleRows(packed, 4, (0, 0))
    with pytest.raises(
        DataError, match=r"no example in .* fits into a length of 5: the shortest needs"
    ):
        make(prepared, {"length": 5, "mix": MIX["mix"][:2]})
    with pytest.raises(DataError, match="needs at least 12 tokens, but length is 11"):
        make(prepared, {"length": 10, "mix": [{"task": "passkey"}]})


def test_data_of_another_tokenizer_or_split_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path, parse_corpus("python-docs", tmp_path), BYTE, "validation")
    with pytest.raises(DataError, match="prepared with split validation, but needs train"):
        make({"data.0": tmp_path}, {"corpus": "python-docs", "length": 8})


@pytest.mark.parametrize(
    "spec",
    [
        {"corpus": "python-docs", "length": 64},
        {"task": "passkey", "length": 64, "queries": 2},
        {"corpus": "python-docs", "length": 64, "documents": "within", "pack": True},
        {**MIX, "documents": "within"},
        {"length": 8, "weights": "epochs", "mix": [{"corpus": "python-docs", "weight": 0.1}]},
        MIX,
        {"length": 8, "mix": [{"corpus": {"type": "c4", "limit": 9}}, {"task": "passkey"}]},
    ],
)
def test_a_description_stands_for_what_its_canonical_form_does(spec: dict[str, Any]) -> None:
    data = parse_data(spec, Path())
    assert parse_data(data.canonical(), Path("/nowhere")) == data
    validator = jsonschema.Draft202012Validator(data_json_schema())
    validator.validate(spec)
    validator.validate(data.canonical())


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("c4", {(): "found 'c4', needs a mapping"}),
        ({"corpus": "c4"}, {("length",): "is missing"}),
        ({"corpus": "c4", "length": 0}, {("length",): "found 0, needs at least 1"}),
        ({"corpus": "c4", "length": 8.5}, {("length",): "found 8.5, needs"}),
        ({"corpus": "c4", "length": True}, {("length",): "found true, needs"}),
        ({"length": 8}, {(): "neither"}),
        (
            {"length": 8, "corpus": "c4", "documents": "witin", "pack": 1},
            {("documents",): "found 'witin'; did you mean 'within'", ("pack",): "found 1"},
        ),
        (
            {**MIX, "documents": ["within"]},
            {("documents",): r"found \['within'\]; did you mean 'within'"},
        ),
        ({"length": 8, "corpus": "c4", "weights": "tokens"}, {("weights",): "unknown option"}),
        ({**MIX, "weights": "epoch"}, {("weights",): "did you mean 'epochs'"}),
        ({"length": 8, "mix": [{"fils": "*.txt"}]}, {("mix", 0): "found fils, needs exactly one"}),
        ({"length": 8, "mix": []}, {("mix",): r"found \[\], needs at least one entry"}),
        ({"length": 8, "corpus": "c4", "lenght": 8}, {("lenght",): "did you mean 'length'"}),
        ({"length": 8, "mix": [{"corpus": "c4"}], "x": 1}, {("x",): "unknown option 'x' of data"}),
        (
            {"length": 8, "corpus": "c4", "task": "passkey"},
            {(): "found corpus, task, needs exactly one"},
        ),
        (
            {
                "length": -1,
                "mix": [
                    {"corpus": "c5"},
                    {"task": "paskey"},
                    {"task": "passkey", "form": "german"},
                    {"task": "passkey", "digits": 0},
                    {"task": "passkey", "form": "english", "queries": 2},
                    {"corpus": "c4", "weight": 0},
                    {"corpus": "c4", "weight": float("nan")},
                    3,
                ],
            },
            {
                ("length",): "found -1",
                ("mix", 0, "corpus"): r"unknown corpus 'c5' \(allowed: c4",
                ("mix", 1, "task"): "did you mean 'passkey'",
                ("mix", 2, "form"): r"found 'german' \(allowed: english, symbolic\)",
                ("mix", 3, "digits"): "found 0",
                ("mix", 4): "queries is for the symbolic form",
                ("mix", 5, "weight"): "found 0, needs more than 0",
                ("mix", 6, "weight"): "found nan",
                ("mix", 7): "found 3",
            },
        ),
    ],
)
def test_every_problem_of_a_description_is_told(spec: Any, problems: dict[Any, str]) -> None:
    with pytest.raises(DataError) as caught:
        parse_data(spec, Path(), ("stages", "pretrain", "data"))
    found = {problem.path[3:]: problem.message for problem in caught.value.problems}
    assert found.keys() == problems.keys()
    for at, message in problems.items():
        assert re.search(message, found[at])
    assert str(caught.value).startswith("stages.pretrain.data")
    assert not jsonschema.Draft202012Validator(data_json_schema()).is_valid(spec)


def test_files_are_a_source_alone_and_in_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    long = parse_data({"corpus": {"files": "*.txt"}, "length": 8}, tmp_path)
    assert parse_data({"files": "*.txt", "length": 8}, tmp_path) == long
    mixed = parse_data({"mix": [{"files": "*.txt", "weight": 2}], "length": 8}, tmp_path)
    assert (mixed.mix[0].corpus, mixed.mix[0].weight) == (long.mix[0].corpus, 2.0)
    with pytest.raises(DataError, match=r"^files: no file matches"):
        parse_data({"files": "none", "length": 8}, tmp_path)


def test_a_batch_is_made_quickly(
    prepared: dict[str, Path], benchmark_seconds: Callable[[Callable[[], Any]], float]
) -> None:
    data = make(prepared, {**MIX, "length": 64}, batch_size=64)
    assert benchmark_seconds(lambda: data.batch(7)) < 0.01
