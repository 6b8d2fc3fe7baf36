"""Sharded checkpoints: written while the training goes on, and read by groups of any size."""

from __future__ import annotations

import errno
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import start
from real_training import LENGTH, RealStage, assert_equal, prepare, pretraining
from sharded_training import DEAD_AT, attempts, make

from fope_lab.model import CheckpointError, Decoder, load_model
from fope_lab.store.checkpoint import damaged_files, list_checkpoints
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store
from trainers.checkpoints import ShardedCheckpoints, is_sharded, load_shards, sharded_state
from trainers.optimizer import build_optimizer
from trainers.workers import Shards


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two workers left at once, what they had saved when they died (while they wrote that, the
    training had long gone on), and what they made of that afterwards."""
    folder = tmp_path_factory.mktemp("sharded")
    prepare(folder)
    two = (("whole", False, 0.0), ("dead", True, 0.5), ("from-2", False, 0.0))
    start(attempts, 2, folder, *two, count=2)
    return folder


def gone_on(folder: Path, size: int) -> RealStage:
    """The stage that died, finished by so many workers."""
    stage = make(folder, f"from-{size}")
    if size == 1:
        shutil.copytree(folder / "dead", folder / "from-1")
        stage.attempt()
    elif size == 3:
        start(attempts, 3, folder, ("from-3", False, 0.0), count=3)
    return stage


def test_each_worker_has_written_a_part_and_nothing_is_left_half(folder: Path) -> None:
    dead = make(folder, "dead")
    newest, before = list_checkpoints(dead.folder.paths)
    assert (newest.step, before.step) == (DEAD_AT - 1, DEAD_AT - 3)
    for checkpoint in (newest, before):
        assert is_sharded(checkpoint.path)
        assert not damaged_files(checkpoint.path)
        sizes = [path.stat().st_size for path in (checkpoint.path / "shards").glob("*.distcp")]
        assert len(sizes) == 2
        assert min(sizes) > 0.4 * max(sizes)
    assert not list(dead.folder.paths.checkpoints.glob(".*"))
    with pytest.raises(CheckpointError, match="shards that a training by several workers goes on"):
        load_model(newest.path)


def test_the_same_workers_go_on_to_the_bit(folder: Path) -> None:
    found, whole = gone_on(folder, 2), make(folder, "whole")
    assert_equal(found, whole)
    assert [found.folder.attempts.newest_token(), whole.folder.attempts.newest_token()] == [2, 1]
    record = found.folder.attempts.record(2)
    assert record.details["resumed_from"]["step"] == DEAD_AT - 1
    checkpoint = found.folder.final_checkpoint()
    assert not is_sharded(checkpoint.path), "what it leaves is one file"


@pytest.mark.parametrize("size", [1, 3])
def test_fewer_and_more_workers_go_on(folder: Path, size: int) -> None:
    found, whole = gone_on(folder, size), make(folder, "whole")
    (rows, result), (expected_rows, expected) = found.outcome(), whole.outcome()
    losses = [values["loss"] for _, values in rows if "loss" in values]
    assert losses == pytest.approx([v["loss"] for _, v in expected_rows if "loss" in v], abs=1e-5)
    ours, theirs = found.weights(), whole.weights()
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-3)
    assert result["parameters"] == expected["parameters"]


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_a_full_disk_costs_the_checkpoint_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the thread that writes: the training hears of it when it next looks."""
    state = {"model.weight": torch.ones(3)}
    with Store(tmp_path).folder("pretrain", "key").begin("test", {}) as begun:
        sharded = ShardedCheckpoints(begun.writer, Shards())

        def write(directory: Path) -> None:
            (directory / "small").write_text("a")

        sharded.begin(1, state, write)
        sharded.wait()
        with monkeypatch.context() as patched:
            patched.setattr(dcp.FileSystemWriter, "write_data", _full)
            sharded.begin(2, state, write)
            with pytest.raises(StoreError, match=r"no space left .* the checkpoint of step 2"):
                sharded.wait()
        with pytest.raises(StoreError, match=r"no space left .* the checkpoint of step 2"):
            sharded.begin(2, state, _full)  # before the shards
        assert not sharded.is_writing
        paths = begun.writer.paths
        assert [one.step for one in list_checkpoints(paths)] == [1]
        assert not list(paths.checkpoints.glob(".*"))
        state["model.weight"].zero_()
        sharded.begin(3, state, write)
        state["model.weight"].fill_(7)  # the training goes on
        sharded.wait()
        assert [one.step for one in list_checkpoints(paths)] == [3, 1]
        found = {"model.weight": torch.empty(3)}
        dcp.load(found, checkpoint_id=paths.checkpoint(1, 3) / "shards")
        assert found["model.weight"].tolist() == [0, 0, 0]


@pytest.mark.usefixtures("one_process")
def test_a_disk_that_is_full_within_a_tensor_is_named(tmp_path: Path) -> None:
    """torch.save then raises an error of its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store(tmp_path).folder("pretrain", "key").begin("test", {}) as begun:
        sharded = ShardedCheckpoints(begun.writer, Shards())
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            sharded.begin(1, {"model.weight": torch.ones(1 << 20)}, lambda directory: None)
            with pytest.raises(StoreError, match=r"no space left .* the checkpoint of step 1"):
                sharded.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_state_of_each_optimizer_comes_back(tmp_path: Path, optimizer: str) -> None:
    stage = pretraining(3, optimizer=optimizer)

    def fresh() -> tuple[Decoder, torch.optim.Optimizer]:
        model = Decoder(stage.model, "fox", train_length=LENGTH)
        return model, build_optimizer(model, stage.train)

    model, built = fresh()
    for _ in range(2):
        ids = torch.randint(50, (2, LENGTH))
        model(ids, labels=ids).loss.backward()
        built.step()
    with Store(tmp_path).folder("pretrain", "key").begin("test", {}) as begun:
        sharded = ShardedCheckpoints(begun.writer, Shards())
        sharded.begin(1, sharded_state(model, built), lambda directory: None)
        sharded.wait()
        other, rebuilt = fresh()
        load_shards(begun.writer.paths.checkpoint(1, 1), other, rebuilt)
    found, expected = sharded_state(other, rebuilt), sharded_state(model, built)
    kept = {name.split(".")[1] for name in expected if name.startswith("optimizer.")}
    assert ("momentum_buffer" in kept) is (optimizer == "muon")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def _full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_shards_that_cannot_be_read_are_an_error_of_the_store(folder: Path, tmp_path: Path) -> None:
    stage = make(folder, "dead")
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(list_checkpoints(stage.folder.paths)[0].path, checkpoint)
    for path in (checkpoint / "shards").glob("*.distcp"):
        path.unlink()
    model = Decoder(stage.stage.model, stage.stage.embedding, train_length=LENGTH)
    with pytest.raises(StoreError, match=r"checkpoint can't be read: .*\.distcp"):
        load_shards(checkpoint, model, build_optimizer(model, stage.stage.train))


def test_the_shards_of_another_model_are_refused(folder: Path) -> None:
    checkpoint = list_checkpoints(make(folder, "dead").folder.paths)[0].path
    stage = make(folder, "dead").stage
    model = Decoder(stage.model, "kerple", train_length=16)
    with pytest.raises(ValueError, match="another model's: "):
        load_shards(checkpoint, model, build_optimizer(model, stage.train))
    assert sharded_state(model, build_optimizer(model, stage.train)).keys() == {
        f"model.{name}" for name in model.untied_state()
    }
