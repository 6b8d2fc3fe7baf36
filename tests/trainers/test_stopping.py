"""Asked to stop, a training saves a checkpoint between two steps, and loses none; so do groups."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import start
from tiny_training import Bigrams, TinyStage, batch, train_settings

from fope_lab.data.mixture import Batch
from fope_lab.store import lease
from fope_lab.store.lease import StageStoppedError
from fope_lab.store.writer import RunWriter
from trainers.workers import Replicas

STEPS = 12
DROPOUT = 0.3  # so that the random state matters


@pytest.fixture(autouse=True)
def looking_each_time() -> Iterator[None]:
    """A request is seen before the next step, as it is where steps take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "STOP_LOOK_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> TinyStage:
    stage = TinyStage(tmp_path_factory.mktemp("whole"), train_settings(STEPS), DROPOUT)
    stage.attempt()
    return stage


@settings(deadline=None, max_examples=15)
@given(
    stops=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=4),
    checkpoint_every=st.integers(1, STEPS + 1),
)
def test_the_same_bits_wherever_it_is_asked_to_stop(
    uninterrupted: TinyStage, stops: list[int], checkpoint_every: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        chosen = train_settings(STEPS, checkpoint_every=checkpoint_every)
        stage, done = TinyStage(Path(root), chosen, DROPOUT), 0
        for stop in sorted(stops):
            stage.stopped_in(max(stop, done))
            done = max(stop, done) + 1
            if done >= STEPS:
                break  # the last step ends a training, whatever it is asked
            checkpoint = stage.folder.checkpoint()
            assert checkpoint.step == done
            assert stage.folder.state().reason == f"stopped at step {done} of {STEPS}"
            torch.manual_seed(5)  # another process has another random state
        if not stage.folder.is_done():
            stage.attempt()
        assert stage.outcome() == uninterrupted.outcome()


def test_asked_before_its_first_step_it_saves_nothing_and_takes_none(tmp_path: Path) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS))
    stage.stop.prepare()
    stage.stop.make()

    def no_batch(step: int) -> Batch:
        raise AssertionError(f"step {step} was taken")

    with pytest.raises(StageStoppedError, match=f"stopped at step 0 of {STEPS}"):
        stage.attempt(no_batch)
    assert stage.folder.checkpoint() is None


def test_the_file_is_looked_at_a_few_times_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "STOP_LOOK_SECONDS", 0.25)
    now = [0.0]
    request = lease.StopRequest(tmp_path / "driver" / "stop")
    request.prepare()
    watch = lease.StopWatch(request, lambda: now[0])
    assert not watch.is_made()
    request.make()
    now[0] = 0.2
    assert not watch.is_made()
    now[0] = 0.3
    assert watch.is_made()


def test_a_request_that_can_not_be_read_asks_for_nothing(tmp_path: Path) -> None:
    assert not lease.StopRequest(tmp_path / "none" / "stop").is_made()


def worker(rank: int, root: Path) -> None:
    """Train with one other worker; only worker 0 can read the request, which comes in step 5."""
    torch.set_num_threads(1)
    lease.STOP_LOOK_SECONDS = 0.0
    rendezvous = f"file://{root}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    stage, taken = TinyStage(root / str(rank), train_settings(STEPS)), []

    def batches(step: int) -> Batch:
        taken.append(step)
        if rank == 0 and step == 5:
            stage.stop.make()
        return batch(step)

    with stage.folder.begin("test", {}, stop_file=stage.stop.path) as attempt:
        writer = attempt.writer if rank == 0 else RunWriter(attempt.writer.handle)
        with pytest.raises(StageStoppedError):
            stage.train(writer, batches, Bigrams(), Replicas())
    (root / f"taken-{rank}").write_text(str(taken))
    dist.destroy_process_group()


def test_the_workers_of_a_group_stop_after_the_same_step(tmp_path: Path) -> None:
    for rank in range(2):
        TinyStage(tmp_path / str(rank), train_settings(STEPS)).stop.prepare()
    start(worker, tmp_path, count=2)
    for rank in range(2):
        assert (tmp_path / f"taken-{rank}").read_text() == str([0, 1, 2, 3, 4, 5])
    stage, whole = (TinyStage(tmp_path / name, train_settings(STEPS)) for name in ("0", "whole"))
    checkpoint = stage.folder.checkpoint()
    assert checkpoint.step == 6
    stage.stop.prepare()
    stage.attempt()  # alone: two workers with the same rows have the mean gradient of one
    whole.attempt()
    losses, others = ([row.values["loss"] for row in one.folder.rows()] for one in (stage, whole))
    assert losses == pytest.approx(others, abs=1e-5)
