"""An evaluation that goes on after a kill, and one of several workers: the bits of one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from real_evaluations import CASES, SIZES, RealEvaluation, prepare

from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.evaluation.context import Context
from fope_lab.evaluation.scoring.batches import Result
from fope_lab.evaluation.scoring.generating import answer
from fope_lab.evaluation.scoring.loglikelihood import score_continuations
from fope_lab.evaluation.scoring.reading import SharedPrefixReader, lexicographic
from fope_lab.evaluation.shared_work import SharedWork, read_results, write_results
from fope_lab.model import Decoder
from fope_lab.store.checkpoint import list_checkpoints
from fope_lab.store.lease import StageStoppedError, StopRequest
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.store.writer import AttemptHandle, RunWriter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluations")
    prepare(folder)
    return folder


def whole(folder: Path, case: str) -> RealEvaluation:
    """A case done at once, which saves nothing on its way."""
    found = RealEvaluation(folder, f"{case}-whole", case)
    if not found.stage.is_done():
        found.attempt()
    return found


@pytest.mark.parametrize("case", CASES)
def test_killed_again_and_again_it_repeats_nothing_and_ends_with_the_same_bits(
    folder: Path, case: str
) -> None:
    unbroken = RealEvaluation(folder, f"{case}-unbroken", case)
    [batches] = unbroken.attempts()
    assert batches > 6
    killed = RealEvaluation(folder, f"{case}-killed", case)
    after = {1, batches // 3, batches - 2, batches}
    counts = killed.attempts(lambda count: count in after)
    assert np.cumsum(counts).tolist() == [*sorted(after), batches]
    assert killed.outcome() == unbroken.outcome() == whole(folder, case).outcome()
    for one in (killed, unbroken):
        assert not list_checkpoints(one.stage.paths), "the partial results are no output"
        assert not one.stage.damage()


def test_its_speed_is_that_of_what_it_computes_itself(folder: Path) -> None:
    """And the time left follows from that."""
    told: list[int] = []
    report = Context.report_progress

    def telling(context: Context, done: int, total: int) -> None:
        told.append(done)
        report(context, done, total)

    resumed = RealEvaluation(folder, "resumed", "perplexity")
    with patch.object(Context, "report_progress", telling):
        resumed.attempts(lambda count: count == 4)
    progress = resumed.stage.progress()
    assert progress is not None
    assert progress["step"] == progress["total"]
    first, second = told[:3], told[3:]  # the attempt that died did not tell of its fourth batch
    assert first == second[:3]
    assert progress["first_step"] == second[3], "the four that it took over"


def test_asked_to_stop_it_saves_what_it_has_and_stops(folder: Path, tmp_path: Path) -> None:
    evaluation = RealEvaluation(folder, "stopped", "perplexity")
    request = StopRequest(tmp_path / "stop")
    request.make()
    with (
        pytest.raises(StageStoppedError),
        evaluation.stage.begin("test", {}, stop_file=request.path) as attempt,
    ):
        evaluation.evaluate(attempt.writer)
    checkpoint = evaluation.stage.checkpoint()
    assert checkpoint is not None
    assert checkpoint.is_partial()
    [(_, results)] = read_results(checkpoint.path)
    assert len(results) == checkpoint.step == 1
    evaluation.attempt()
    assert evaluation.outcome() == whole(folder, "perplexity").outcome()
    assert evaluation.stage.state().status is Status.DONE


def test_results_of_other_batches_are_not_taken(folder: Path) -> None:
    """As after a change of batch_tokens, which is not in the key."""
    evaluation, unbroken = (RealEvaluation(folder, name, "posgen") for name in ("small", "large"))
    smaller = (CASES["posgen"][0], CASES["posgen"][1] | {"batch_tokens": 96})
    with patch.dict(CASES, posgen=smaller), pytest.raises(ZeroDivisionError):
        evaluation.attempts(lambda count: 1 // (3 - count) < 0)
    assert evaluation.stage.checkpoint() is not None
    assert evaluation.attempts() == unbroken.attempts()
    assert evaluation.outcome() == unbroken.outcome()


def test_a_stage_whose_own_files_were_saved_starts_again(folder: Path) -> None:
    assert read_results(folder) == []


shapes = st.lists(st.integers(0, 4), max_size=3).flatmap(
    lambda tail: st.lists(st.integers(0, 3).map(lambda n: (n, *tail)), min_size=1, max_size=4)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(shapes, st.sampled_from(["<f8", "<i8", "?"])), max_size=3), st.data())
def test_results_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lists: list[tuple[str, list[Result]]] = [
        (str(i), [(rng.normal(size=s).astype(dtype), rng.normal(size=())) for s in sizes])
        for i, (sizes, dtype) in enumerate(kinds)
    ]
    write_results(folder, lists)
    found = read_results(folder)
    assert [digest for digest, _ in found] == [digest for digest, _ in lists]
    for (_, ours), (_, theirs) in zip(found, lists, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            for array, expected in zip(one, other, strict=True):
                assert array.dtype == expected.dtype
                np.testing.assert_array_equal(array, expected, strict=True)


def scaled_model(embedding: str) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(SIZES, embedding, train_length=32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


class TakesFirst:
    """A `Work` whose first results, of a number of batches, are known already."""

    def __init__(self, known: list[Result]) -> None:
        self.known, self.found = known, list[Result]()

    def __call__(self, batches: Any, compute: Any, skip: Any, *, divisible: bool = True) -> Any:
        for place, batch in enumerate(batches):
            if place < len(self.known):
                skip(batch, self.known[place])
                self.found.append(self.known[place])
            else:
                self.found.append(compute(batch))
            yield self.found[-1]


@pytest.mark.parametrize("embedding", ["rope", "random-rope", "dynamic-ntk"])
@pytest.mark.parametrize("kind", ["answers", "continuations"])
def test_engines_go_on_from_any_batch(embedding: str, kind: str) -> None:
    model, text = scaled_model(embedding), np.random.default_rng(0).integers(0, 256, 700)
    prompts = [text[i : i + 5 + i % 3] for i in range(9)]
    requests = [(text[i : i + 20], text[i + 20 : i + 23]) for i in range(20)]

    def run(known: list[Result]) -> tuple[Any, list[Result]]:
        torch.manual_seed(0)
        work = TakesFirst(known)
        how = {"batch_tokens": 25, "work": work}
        if kind == "answers":
            found: Any = answer(model, ByteTokenizer(), prompts, max_new_tokens=6, **how)
        else:
            found = score_continuations(model, requests, **how)
        return found, work.found

    expected, results = run([])
    assert len(results) > 3
    for count in (1, len(results) // 2, len(results) - 1):
        found, again = run(results[:count])
        assert found == expected
        for one, other in zip(again, results, strict=True):
            for array, before in zip(one, other, strict=True):
                np.testing.assert_array_equal(array, before, strict=True)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=8, max_size=8), st.integers(0, 99))
def test_a_reader_that_left_out_batches_reads_the_bits_of_one_that_did_not(
    left_out: list[bool], seed: int
) -> None:
    model, rng = scaled_model("rope"), np.random.default_rng(seed)
    text = rng.integers(0, 256, 80)
    prompts = [text.copy() for _ in range(24)]
    for prompt in prompts:
        prompt[rng.integers(5, 78)] = rng.integers(0, 256)
    order = lexicographic(prompts)
    batches: list[NDArray[np.int64]] = [
        np.stack([prompts[i] for i in order[first : first + 3]]) for first in range(0, 24, 3)
    ]
    every, some = SharedPrefixReader(model), SharedPrefixReader(model)
    with torch.inference_mode():
        for ids, out in zip(batches, left_out, strict=True):
            expected = every.last_states(ids, 2)
            if out:
                some.skip(ids, 2)
            else:
                assert torch.equal(some.last_states(ids, 2), expected)


class Rounds:
    """Worker `rank` of several whose other members computed what is in `others` already."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.rounds = 0

    def gather(self, value: Any) -> list[Any]:
        computed, stop = value
        values = [((np.array(self.rounds * self.size + r),), False) for r in range(self.size)]
        if computed is None:
            values[self.rank] = (None, stop)
        else:
            assert computed == values[self.rank][0]
        self.rounds += 1
        return values


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_each_worker_computes_its_own_batches(tmp_path: Path, size: int, count: int) -> None:
    paths = Store(tmp_path).folder("passkey", "key").paths
    for rank in range(size):
        done, skipped = [], []

        def compute(batch: int, done: list[int] = done) -> Result:
            done.append(batch)
            return (np.array(batch),)

        def skip(batch: int, result: Result | None, skipped: list[int] = skipped) -> None:
            assert result is None
            skipped.append(batch)

        work = SharedWork(RunWriter(AttemptHandle(paths, 1, None)), Rounds(rank, size))
        found = [int(result) for (result,) in work(range(count), compute, skip)]
        assert found == list(range(count))
        assert done == list(range(rank, count, size))
        assert sorted([*done, *skipped]) == list(range(count))
