"""Rows: what a token may see, what has a loss, and that their order follows from the seed alone."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.mixture import TrainingData
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.recipe import parse_data
from fope_lab.data.rows import IGNORED, ExampleRows, TextRows
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

BYTE = ByteTokenizer()


class Given(Corpus):
    """A corpus of the documents of a test."""

    def __init__(self, documents: list[Any], kind: Any) -> None:
        object.__setattr__(self, "given", documents)
        object.__setattr__(self, "kind", kind)

    def identity(self) -> dict[str, Any]:
        return {"type": "given"}

    def documents(self, split: Split) -> Any:
        return iter(self.given)


def packed(folder: Path, documents: list[Any], kind: str) -> PackedCorpus:
    """The documents, prepared in shards of a few tokens."""
    folder.mkdir(exist_ok=True)
    write_packed(folder, Given(documents, kind), BYTE, "train", shard_length=7)
    return PackedCorpus(folder, {})


TEXTS = st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=12)
PAIRS = st.lists(
    st.tuples(st.text("pq", min_size=1, max_size=6), st.text("ab", min_size=1, max_size=6)),
    min_size=1,
    max_size=14,
)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 9))
def test_windows_number_the_documents_and_predict_no_first_token(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], length: int
) -> None:
    data = packed(tmp_path_factory.mktemp("text"), texts, "text")
    tokens, numbers = [], []
    for number, text in enumerate(texts):
        tokens += [*text.encode(), BYTE.eos_id]
        numbers += [number] * (len(text) + 1)
    if len(tokens) <= length:
        return
    rows = TextRows(data, length, (0, 0), within=True)
    assert rows.epoch is not None
    ids, labels, documents, _ = rows.rows(0, rows.epoch)
    assert documents is not None
    plain = TextRows(data, length, (0, 0)).rows(0, rows.epoch)
    assert ids.tolist() == plain.ids.tolist()
    expected = {}
    for start in range(0, rows.epoch * length, length):
        window = slice(start, start + length + 1)
        own = [number - numbers[start] for number in numbers[window]]
        ends = [False, *(a != b for a, b in pairwise(own))]
        learnt = [IGNORED if e else t for t, e in zip(tokens[window], ends, strict=True)]
        expected[start] = (tokens[window], learnt, own)
    found = list(zip(ids.tolist(), labels.tolist(), documents.tolist(), strict=True))
    assert sorted(found) == sorted(expected.values())


@settings(deadline=None)
@given(TEXTS, st.integers(1, 9), st.lists(st.integers(300, 400), min_size=1, max_size=3))
def test_every_document_begins_with_the_prefix_which_is_not_predicted(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], length: int, prefix: list[int]
) -> None:
    data = packed(tmp_path_factory.mktemp("text"), texts, "text")
    tokens: list[int] = []
    learnt: list[int] = []
    numbers: list[int] = []
    for number, text in enumerate(texts):
        own = [*text.encode(), BYTE.eos_id]
        tokens += [*prefix, *own]
        learnt += [*[IGNORED] * len(prefix), *own]
        numbers += [number] * (len(prefix) + len(own))
    if len(tokens) <= length:
        return
    for within in (False, True):
        rows = TextRows(data, length, (0, 0), within=within, prefix=prefix)
        assert rows.epoch == (len(tokens) - 1) // length
        ids, labels, documents, _ = rows.rows(0, rows.epoch)
        found = list(zip(ids.tolist(), labels[:, 1:].tolist(), strict=True))
        windows = [slice(at, at + length + 1) for at in range(0, rows.epoch * length, length)]
        expected = [(tokens[w], learnt[w][1:]) for w in windows]
        assert sorted(found) == sorted(expected)
        if documents is not None:
            own_numbers = [[n - numbers[w.start] for n in numbers[w]] for w in windows]
            assert sorted(documents.tolist()) == sorted(own_numbers)


@settings(deadline=None)
@given(PAIRS, st.integers(4, 24), st.booleans())
def test_a_prefix_begins_every_pair(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], length: int, pack: bool
) -> None:
    data = packed(tmp_path_factory.mktemp("pairs"), pairs, "pairs")
    fitting = sorted(
        ([300, *p.encode(), *a.encode(), BYTE.eos_id], [*a.encode(), BYTE.eos_id])
        for p, a in pairs
        if len(p) + len(a) + 2 <= length + 1
    )
    if not fitting:
        return
    rows = ExampleRows(data, length, (0, 5), pad_id=BYTE.pad_id, pack=pack, prefix=[300])
    assert rows.examples == len(fitting)
    assert rows.epoch is not None
    found = []
    for row in range(rows.epoch):
        ids, labels, _, sizes = rows.rows(row, 1)
        assert sizes is not None
        places = [*(at for at, i in enumerate(ids[0]) if i == 300), int(sizes[0])]
        for start, end in pairwise(places):
            learnt = [i for i in labels[0, start:end].tolist() if i != IGNORED]
            found.append((ids[0, start:end].tolist(), learnt))
    assert sorted(found) == fitting


@settings(deadline=None)
@given(PAIRS, st.integers(4, 24), st.booleans())
def test_rows_hold_every_example_once_an_epoch(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], length: int, pack: bool
) -> None:
    pairs = [(f"{i}{prompt}", answer) for i, (prompt, answer) in enumerate(pairs)]
    data = packed(tmp_path_factory.mktemp("pairs"), pairs, "pairs")
    fitting = {(p, a) for p, a in pairs if len(p) + len(a) + 1 <= length + 1}
    if not fitting:
        return
    rows = ExampleRows(data, length, (0, 5), pad_id=BYTE.pad_id, pack=pack)
    assert (rows.examples, rows.dropped) == (len(fitting), len(pairs) - len(fitting))
    assert rows.epoch is not None
    used = sum(len(p) + len(a) + 1 for p, a in fitting)
    assert rows.fill == pytest.approx(used / (rows.epoch * (length + 1)))
    orders = []
    first = 0
    for _ in range(3):
        seen: list[tuple[str, str]] = []
        sizes: list[list[int]] = []
        while len(seen) < len(fitting):
            examples = row_examples(rows, first)
            sizes.append([len(p) + len(a) + 1 for p, a in examples])
            seen += examples
            first += 1
        assert set(seen) == fitting
        assert len(seen) == len(fitting)
        assert pack or all(len(row) == 1 for row in sizes)
        for row, after in pairwise(sizes) if pack else ():  # greedy: the next did not fit
            assert sum(row) + after[0] > length + 1
        orders.append(seen)
    if len(fitting) > 5:
        assert len({tuple(order) for order in orders}) > 1


def row_examples(rows: ExampleRows, index: int) -> list[tuple[str, str]]:
    """The examples of a row, after checking all that is in it."""
    row = rows.rows(index, 1)
    assert row.sizes is not None
    ids, labels, read = row.ids[0].tolist(), row.labels[0].tolist(), int(row.sizes[0])
    alone = [0] * read + [1] * (len(ids) - read)
    documents = alone if row.documents is None else row.documents[0].tolist()
    found = []
    place = 0
    for number in range(max(documents) + 1):
        size = documents.count(number)
        assert documents[place : place + size] == [number] * size
        document, learnt = ids[place : place + size], labels[place : place + size]
        place += size
        if document[0] == BYTE.pad_id:
            assert number == max(documents)
            assert place == len(ids)
            assert read == place - size
            assert set(document) == {BYTE.pad_id}
            assert set(learnt) == {IGNORED}
            continue
        answer = next(i for i, label in enumerate(learnt) if label != IGNORED)
        assert learnt == [IGNORED] * answer + document[answer:]
        assert document[-1] == BYTE.eos_id
        found.append((BYTE.decode(document[:answer]), BYTE.decode(document[answer:-1])))
    return found


def test_an_answer_with_no_prompt_is_not_predicted_from_another_example(tmp_path: Path) -> None:
    data = packed(tmp_path, [("", "ab"), ("", "cd")], "pairs")
    rows = ExampleRows(data, 9, (0, 0), pad_id=BYTE.pad_id, pack=True).rows(0, 1)
    ids, labels, documents, sizes = rows
    assert documents is not None
    assert sizes is not None
    assert sizes.tolist() == [6]
    assert documents[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert (labels[0] == IGNORED).tolist() == [True, False, False] * 2 + [True] * 4
    assert ids.shape == labels.shape == (1, 10)


SPECS: list[dict[str, Any]] = [
    {"documents": "within", "mix": [{"corpus": "python-docs"}]},
    {"documents": "within", "mix": [{"corpus": "python-docs"}, {"task": "passkey", "weight": 2}]},
    {"pack": True, "mix": [{"corpus": {"type": "dataset-pairs", "dataset": "PAIRS"}}]},
    {
        "documents": "within",
        "pack": True,
        "mix": [
            {"corpus": "python-docs", "weight": 0.5},
            {"corpus": {"type": "dataset-pairs", "dataset": "PAIRS"}, "weight": 0.7},
            {"task": "passkey", "weight": 0.3},
        ],
    },
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, Path]]]:
    """The data of SPECS with the directories of their corpora."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = ({"prompt": f"p{i}" * (i % 7 + 1), "answer": f"{i}"} for i in range(300))
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found, known = [], {}
    for spec in SPECS:
        text = json.dumps({"length": 40, **spec}).replace("PAIRS", str(folder))
        data = parse_data(json.loads(text), folder)
        directories = {}
        for index, source in enumerate(data.mix):
            if source.corpus is not None:
                name = source.corpus.name
                if name not in known:
                    known[name] = tmp_path_factory.mktemp(name)
                    corpus = parse_corpus(source.corpus.canonical(), folder)
                    write_packed(known[name], corpus, BYTE, "train", shard_length=1000)
                directories[f"data.{index}"] = known[name]
        found.append((data, directories))
    return found


@settings(deadline=None, max_examples=12)
@given(
    which=st.integers(0, len(SPECS) - 1),
    seed=st.integers(0, 3),
    step=st.integers(0, 300),
    workers=st.sampled_from([2, 3, 4, 12]),
    before=st.lists(st.integers(0, 300), max_size=3),
)
def test_a_batch_follows_from_seed_and_step_for_every_number_of_workers(
    prepared: list[tuple[Any, dict[str, Path]]],
    which: int,
    seed: int,
    step: int,
    workers: int,
    before: list[int],
) -> None:
    data, directories = prepared[which]

    def made(rank: int, size: int) -> TrainingData:
        return TrainingData(
            data, directories, BYTE, batch_size=12, seed=seed, rank=rank, world_size=size
        )

    whole = made(0, 1).batch(step)
    assert whole.documents is not None
    assert whole.documents.shape == whole.input_ids.shape == (12, 40)
    parts = []
    for rank in range(workers):
        worker = made(rank, workers)
        for other in before:  # whatever was asked for before
            worker.batch(other)
        parts.append(worker.batch(step))
    for name in ("input_ids", "labels", "documents"):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(whole, name))


def test_documents_are_there_where_something_needs_them(
    prepared: list[tuple[Any, dict[str, Path]]], tmp_path: Path
) -> None:
    data, directories = prepared[3]
    batch = TrainingData(data, directories, BYTE, batch_size=30, seed=0).batch(0)
    assert batch.documents is not None
    across = (batch.documents[:, 1:] != batch.documents[:, :-1]).any(1)
    assert 0 < int(across.sum()) < 30  # tasks, and most windows of text, are one document
    plain = parse_data({"length": 40, "mix": [{"corpus": "python-docs"}]}, tmp_path)
    assert TrainingData(plain, directories, BYTE, batch_size=30, seed=0).batch(0).documents is None


def test_what_became_of_the_examples_is_told(prepared: list[tuple[Any, dict[str, Path]]]) -> None:
    def told(**changes: Any) -> list[dict[str, Any]]:
        data, directories = prepared[2]
        spec = parse_data({**data.canonical(), **changes}, Path())
        return TrainingData(spec, directories, BYTE, batch_size=1, seed=0).examples()

    [packed_ones], [alone] = told(), told(pack=False)
    assert 1 > packed_ones["fill"] > 1.5 * alone["fill"]
    assert packed_ones["dropped"] == alone["dropped"] == 0
    assert told(length=8)[0]["dropped"] > 0
    text, directories = prepared[0]
    assert TrainingData(text, directories, BYTE, batch_size=1, seed=0).examples() == []
