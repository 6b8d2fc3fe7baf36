"""A trial's attempts at a stage: others may have been quicker, and what ends it is always told."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray.tune
import torch
from ray.experimental import internal_kv

from fope_lab.config.atomic_files import MAKE_ROOM
from fope_lab.config.plugins import WithPlugins
from fope_lab.orchestration import trial
from fope_lab.orchestration.drivers import stop_request
from fope_lab.orchestration.trial import Order, order_place, run_slot, run_until_ended
from fope_lab.stages.base import Resources
from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import StageStoppedError
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.store.writer import RunWriter
from fope_lab.sweep.plan import output_digest
from trainers.distributed import WorkersLostError


def stage_of(work: str = "", parents: dict[str, str] | None = None, key: str = "key") -> Any:
    return SimpleNamespace(
        kind="pretrain",
        key=key,
        label=key.upper(),
        spec=SimpleNamespace(version=1, entry_point=f"{__name__}:{work}", resources=Resources()),
        config={},
        model_spec=None,
        parents=parents or {},
        checkpoints={},
    )


def attempt_of(owner: str, store: Store, stage: Any = None) -> StageState:
    return run_until_ended(Order("key", {"key": stage or stage_of()}, owner), store)


def child_of(store: Store, work: str = "") -> StageState:
    """The state after a trial of a stage that reads another one, `parent`."""
    stages = {"key": stage_of(work, {"from": "parent"}), "parent": stage_of(key="parent")}
    return run_until_ended(Order("key", stages, "me"), store)


@pytest.fixture(autouse=True)
def _no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stage ran on is recorded of real stages (test_execution_record.py)."""
    monkeypatch.setattr(trial, "execution_record", lambda *_: {})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def folder(store: Store) -> StageFolder:
    return store.folder("pretrain", "key")


def fill_disk() -> None:
    """Let every write fail from now on; the file system is left alone."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextlib.contextmanager
def room_afterwards() -> Iterator[None]:
    """Let writes succeed again after the block, for pytest writes too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_stage_that_another_driver_holds_is_left_to_it(store: Store, folder: StageFolder) -> None:
    with folder.begin("other", {}):
        assert attempt_of("me", store).status is Status.RUNNING


def test_a_stage_that_another_driver_has_just_finished_is_done(
    store: Store, folder: StageFolder
) -> None:
    """The searcher saw it free; it was taken and finished before the trial came to it."""
    with folder.begin("other", {}) as attempt:
        attempt.finish({})
    assert attempt_of("me", store).is_done
    assert folder.attempts.newest_token() == 1


def lose_the_lease(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    StageFolder(writer.paths.folder).begin("other", {}, supersede=1).heartbeat.stop()
    return {}


def test_a_stage_that_another_driver_took_over_is_left_to_it(
    store: Store, folder: StageFolder
) -> None:
    state = attempt_of("me", store, stage_of("lose_the_lease"))
    assert (state.status, state.elsewhere) == (Status.RUNNING, True)
    newest = folder.attempts.newest()
    assert newest is not None
    assert (newest.owner, newest.end) == ("other", None)


def diverge_on_a_full_disk(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    fill_disk()
    raise ArithmeticError("the loss is nan\nat step 7")


def test_on_a_full_disk_the_trial_still_says_why(store: Store, folder: StageFolder) -> None:
    with room_afterwards():
        state = attempt_of("me", store, stage_of("diverge_on_a_full_disk"))
    assert (state.status, state.reason) == (Status.FAILED, "the loss is nan")
    assert folder.attempts.newest().end is None, "the disk was not full"


def test_an_attempt_that_can_not_begin_on_a_full_disk_says_why(store: Store) -> None:
    Store.create(store.root)
    with room_afterwards():
        fill_disk()
        state = attempt_of("me", store)
    assert state.status is Status.FAILED
    assert "File too large" in state.reason
    assert state.reason.endswith(f"; {MAKE_ROOM}")


def test_a_node_that_can_not_write_to_the_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    reports: list[dict[str, str]] = []
    monkeypatch.setattr(ray.tune, "report", reports.append)
    monkeypatch.setattr(ray.tune, "get_context", lambda: SimpleNamespace(get_trial_id=lambda: "1"))
    orders = {order_place("1"): pickle.dumps(WithPlugins(Order("key", {}, "me")))}
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda place: orders.pop(place, None))
    run_slot({}, store_root=str(tmp_path / "file" / "store"), checkout=None, code={})
    started, report = reports
    assert not started
    assert report[trial.STATUS] == "failed"
    assert "can't be written: Not a directory" in report[trial.REASON]


def test_a_parent_that_is_not_done_lends_no_checkpoint(store: Store) -> None:
    """Its final checkpoint was damaged since: an earlier one must not pass for it."""
    with store.folder("pretrain", "parent").begin("me", {}) as attempt:
        attempt.writer.save_checkpoint(1, write_model)
    state = child_of(store)
    assert state.status is Status.WAITING
    parent = store.folder("pretrain", "parent").path
    assert state.reason == f"PARENT: its checkpoint is gone from {parent}"


def write_model(path: Path) -> None:
    (path / "model").write_text("the weights")


def finish_parent(store: Store) -> Path:
    """Finish a parent; returns a file of its checkpoint."""
    with store.folder("pretrain", "parent").begin("me", {}) as attempt:
        path = attempt.writer.save_checkpoint(1, write_model).path
        attempt.finish({})
    return path / "model"


def do_nothing(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    return {"recorded": {}}


def test_what_was_read_of_each_parent_is_recorded(store: Store, folder: StageFolder) -> None:
    finish_parent(store)
    parent, state = store.folder("pretrain", "parent"), child_of(store, "do_nothing")
    assert state.is_done, state.reason
    assert folder.parents_read() == {"from": output_digest(parent)}

    def equal_but_for_its_times(path: Path) -> None:
        write_model(path)
        (path / TRAINING_RECORD).write_text("3 s")

    def other(path: Path) -> None:
        (path / "model").write_text("other weights")

    for write, same in ((equal_but_for_its_times, True), (other, False)):
        parent.set_aside("me")
        with parent.begin("me", {}) as attempt:
            attempt.writer.save_checkpoint(1, write)
            attempt.finish({})
        assert (folder.parents_read()["from"] == output_digest(parent)) == same


def one_step(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    """Save a checkpoint and lose the workers, but finish when there is a checkpoint already."""
    if writer.resumed_from is None:
        writer.save_checkpoint(1, write_model)
        raise InterruptedError
    return {"recorded": {}}


@pytest.mark.parametrize("same", [True, False])
def test_a_checkpoint_that_read_other_output_of_a_parent_is_not_continued(
    store: Store, folder: StageFolder, same: bool
) -> None:
    finish_parent(store)
    assert child_of(store, "one_step").status is Status.FAILED
    parent = store.folder("pretrain", "parent")
    parent.set_aside("me")
    with parent.begin("me", {}) as attempt:
        attempt.writer.save_checkpoint(
            1, write_model if same else lambda path: (path / "model").write_text("other") and None
        )
        attempt.finish({})
    assert child_of(store, "one_step").is_done == same
    aside = list(folder.path.glob("set-aside/*/checkpoint/0001-000000001/model"))
    assert len(aside) == (0 if same else 1)
    if not same:  # it began from the start, and its second checkpoint read what is there now
        assert child_of(store, "one_step").is_done


def flip_bit(path: Path) -> None:
    """Damage a file as a disk does: its size and its times stay."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_flipped_bit_of_a_parent_is_not_believed(store: Store, folder: StageFolder) -> None:
    flip_bit(finish_parent(store))
    state = child_of(store)
    assert state.status is Status.WAITING
    parent = store.folder("pretrain", "parent")
    aside = parent.paths.set_aside(2)
    assert state.reason == (
        f"PARENT: model changed after the checkpoint was written; its previous output is in {aside}"
    )
    assert (aside / "checkpoint/0001-000000001/model").exists()
    assert parent.state().status is Status.NOT_STARTED
    assert "model changed after the checkpoint was written" in parent.state().reason
    assert folder.state().status is Status.INTERRUPTED


def damage_parent(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    """Work that saves a checkpoint while a parent's file is damaged under it."""
    writer.save_checkpoint(1, write_model)
    flip_bit(parents["from"] / "model")
    return {"recorded": {}}


def test_a_parent_damaged_while_it_is_read_is_not_believed(
    store: Store, folder: StageFolder
) -> None:
    finish_parent(store)
    assert child_of(store, "damage_parent").status is Status.WAITING
    assert not store.folder("pretrain", "parent").is_done()
    assert folder.checkpoint() is None
    assert folder.state().reason == "to be re-run: it may have read damaged bytes of a parent"


def test_a_parent_damaged_between_two_children_is_found_by_the_second(
    store: Store, folder: StageFolder
) -> None:
    """By the same process, which has read the file for the first child."""
    model = finish_parent(store)
    stages = {
        "key": stage_of("do_nothing", {"from": "parent"}),
        "next": stage_of("do_nothing", {"from": "parent"}, key="next"),
        "parent": stage_of(key="parent"),
    }
    for key, status in (("key", Status.DONE), ("next", Status.WAITING)):
        state = run_until_ended(Order(key, stages, "me"), store)
        assert state.status is status
        flip_bit(model) if key == "key" else None


def test_a_bug_before_the_lease_is_taken_is_recorded_with_its_traceback(
    store: Store, folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_versions() -> dict[str, str]:
        raise LookupError("a package without a version")

    monkeypatch.setattr(trial, "package_versions", read_versions)
    state = attempt_of("me", store)
    assert (state.status, state.reason) == (Status.FAILED, "a package without a version")
    newest = folder.attempts.newest()
    assert newest is not None
    assert newest.end is not None
    assert newest.end["type"] == "LookupError"
    assert "in read_versions\n" in newest.end["traceback"]
    assert "in read_versions\n" in folder.paths.log.read_text()
    with folder.begin("other", {}):
        assert attempt_of("me", store).status is Status.FAILED
    assert folder.attempts.newest_token() == 2, "the other driver's attempt is left to it"


def test_a_stage_whose_code_changed_while_the_run_was_at_work_fails(
    store: Store, folder: StageFolder
) -> None:
    """The process may have imported the code before or after."""
    stage = stage_of("do_nothing")
    stage.spec.entry_point = "trainers.data:prepare_data"
    files = trial.source_of(trial.modules_of(stage))
    code = {path: file.code for path, file in files.items()}
    [name, *_] = [path for path in code if "corpora/files.py" in path]
    state = run_until_ended(
        Order("key", {"key": stage}, "me"), store, code={**code, name: "0" * 20}
    )
    assert state.status is Status.FAILED
    assert state.reason == (
        "files.py changed while this run was at work; run the same command again"
    )
    assert folder.state().status is Status.NOT_STARTED


def test_a_damaged_checkpoint_that_no_stage_made_is_refused(store: Store) -> None:
    damaged = finish_parent(store)
    flip_bit(damaged)
    stage = stage_of()
    stage.checkpoints = {"from": str(damaged.parent)}
    state = attempt_of("me", store, stage)
    assert state.status is Status.FAILED
    assert state.reason == (
        f"the checkpoint {damaged.parent} is damaged:"
        " model changed after the checkpoint was written"
    )


def test_a_damaged_parent_that_somebody_re_runs_is_waited_for(store: Store) -> None:
    flip_bit(finish_parent(store))
    attempts = store.folder("pretrain", "parent").attempts
    attempts.take(attempts.next_token("other"), "other", {})
    state = child_of(store)
    assert state.status is Status.WAITING
    assert state.reason == "PARENT: model changed after the checkpoint was written"


def lose_workers(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    if writer.handle.token <= int((writer.paths.store / "lost").read_text()):
        raise WorkersLostError("lost workers, by number: 1: it is gone")
    return {}


@pytest.mark.parametrize("lost", [1, 4])
def test_attempts_that_lost_workers_are_interrupted_and_the_last_one_failed(
    store: Store, folder: StageFolder, lost: int
) -> None:
    store.root.mkdir()
    (store.root / "lost").write_text(str(lost))
    state = attempt_of("me", store, stage_of("lose_workers"))
    newest = folder.attempts.newest_token()
    records = [folder.attempts.record(token) for token in range(1, newest + 1)]
    assert {record.end["error"] for record in records[:lost]} == {  # type: ignore[union-attr,index]
        "lost workers, by number: 1: it is gone"
    }
    endings = [record and record.ending for record in records]
    if lost < 4:
        assert endings == ["interrupted", "done"]
        assert state.is_done
    else:
        assert endings == ["interrupted"] * 3 + ["failed"]
        assert (state.status, state.reason) == (
            Status.FAILED,
            "lost workers, by number: 1: it is gone",
        )
        assert folder.state().status is Status.FAILED


def leave_traces(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    """Say how the process was found, and change all of it."""
    found = {
        "random": [random.random(), float(np.random.rand()), float(torch.rand(()))],
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
    }
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    return {"metrics": {}, "recorded": {}, "details": found}


def test_a_stage_leaves_nothing_behind_for_the_next_one_in_its_process(store: Store) -> None:
    found = []
    for key in ("first", "second"):
        assert attempt_of("me", store, stage_of("leave_traces", key=key)).is_done
        found.append((store.folder("pretrain", key).result() or {})["details"])
    attempt_of("me", store, stage_of("do_nothing", key="third"))
    assert found[0] == found[1]
    assert found[0]["grad"]
    assert torch.get_default_dtype() is torch.float32


def stop_when_asked(spec: Any, writer: RunWriter, parents: Any) -> dict[str, Any]:
    writer.progress(7, 20)
    writer.handle.stop_file.write_bytes(b"stop\n")  # type: ignore[union-attr]
    assert writer.is_stop_asked()
    raise StageStoppedError("stopped at step 7 of 20")


def test_a_stage_that_is_asked_to_stop_is_interrupted_and_not_tried_again(
    store: Store, folder: StageFolder
) -> None:
    stop_request(store, "me").prepare()
    state = attempt_of("me", store, stage_of("stop_when_asked"))
    assert (state.status, state.reason) == (Status.INTERRUPTED, "stopped at step 7 of 20")
    record = folder.attempts.newest()
    assert record is not None
    assert (record.token, record.ending) == (1, "interrupted")
    assert "error" not in record.end  # type: ignore[operator]
    assert folder.state().reason == "stopped at step 7 of 20"
    assert attempt_of("me", store).status is Status.INTERRUPTED
    assert folder.attempts.newest_token() == 1, "a stage began after the request"
