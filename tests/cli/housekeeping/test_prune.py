"""`fope-lab store prune` removes what nothing refers to, after it has shown it and asked."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kept_sweep import NOPE, ROPE, SWEEP, Scene

from fope_lab.cli import main
from fope_lab.cli.housekeeping.prune import prunable, remove
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store

OLD_RATE, NEW_RATE = "learning_rate: 1e-2", "learning_rate: 1e-3"
PASSKEY = "passkey[embedding=rope,seed=0]"


def paths(store: Store) -> set[str]:
    """What may be removed, by its paths from the store."""
    return {str(waste.path.relative_to(store.root)) for waste in prunable(store)[0]}


def prune(scene: Scene, *options: str) -> int:
    return main(["store", "prune", *scene.options, *options])


@pytest.fixture
def edited(scene: Scene) -> Scene:
    """A sweep that ran, and ran again with another rate: of the first run two stages are left."""
    scene.old = [scene.save(ROPE, finish=True), scene.save(PASSKEY, finish=True)]
    scene.write(SWEEP.replace(OLD_RATE, NEW_RATE))
    scene.record()
    scene.save(ROPE, finish=True)
    return scene


@contextmanager
def answering(text: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A terminal at which somebody types a text."""
    leader, follower = os.openpty()
    with os.fdopen(follower, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(leader, text.encode())
        yield
    os.close(leader)


def test_what_no_sweep_has_any_more_is_removed(
    edited: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    old: list[StageFolder] = edited.old
    assert prune(edited, "--yes") == 0
    output = capsys.readouterr().out
    assert output.count(": no recorded sweep has this stage: ") == 2
    assert f"pretrain/{old[0].path.name}\n" in output
    assert "\nremoved " in output
    assert not any(folder.path.exists() for folder in old)
    assert edited.folder(ROPE).is_done()
    assert not list(edited.store.root.glob(".removed-*"))
    assert prune(edited) == 0
    assert capsys.readouterr().out == f"{edited.store.root}: nothing to remove\n"


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_it_asks_first(
    answer: str, gone: bool, edited: Scene, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with answering(answer, monkeypatch):
        assert prune(edited) == 0
    output = capsys.readouterr().out
    assert "Remove all of this? [y/N] " in output
    assert ("nothing was removed" in output) is not gone
    assert any(folder.path.exists() for folder in edited.old) is not gone


def test_without_a_terminal_it_removes_nothing(
    edited: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull, encoding="utf-8") as null:
        monkeypatch.setattr(sys, "stdin", null)
        assert prune(edited) == 2
    output = capsys.readouterr()
    message = "nothing was removed: there is no terminal to ask at; add --yes"
    assert output.err == f"error: {message}\n"
    assert "no recorded sweep has this stage" in output.out
    assert all(folder.is_done() for folder in edited.old)


def test_a_sweep_file_as_it_is_today_keeps_its_stages(edited: Scene) -> None:
    """Its edit was taken back, and it has not run since."""
    edited.store.keep_sweep_file("kept", edited.file)
    assert len(paths(edited.store)) == 2
    edited.write(SWEEP)
    assert not paths(edited.store)
    edited.file.write_text("name: [")
    waste, notes = prunable(edited.store)
    assert len(waste) == 2
    assert notes == [f"{edited.file} has errors: its stages are those of its last run"]


def test_what_a_kept_stage_started_from_is_kept(edited: Scene) -> None:
    """The passkey of the new sweep reads a checkpoint of the old pretraining by its folder."""
    pretrain, _ = edited.old
    checkpoint = pretrain.final_checkpoint()
    asked = edited.request(PASSKEY) | {"parents": {"model": str(checkpoint.path)}}
    with edited.folder(PASSKEY).begin("driver", asked) as attempt:
        attempt.finish({})
    assert paths(edited.store) == {f"passkey/{edited.old[1].path.name}"}


def test_without_a_record_of_sweeps_no_stage_is_removed(edited: Scene) -> None:
    [plan] = edited.store.root.glob("tracking/sweeps/*/plan.json")
    plan.write_text("{")
    unknown = "nobody can tell which stages are needed, so that none is removed"
    assert prunable(edited.store) == ([], [f"{plan} is damaged", unknown])
    plan.unlink()
    plan.parent.rmdir()
    assert prunable(edited.store) == ([], [unknown])


def test_what_somebody_works_on_is_left_with_all_that_it_needs(edited: Scene) -> None:
    pretrain, passkey = edited.old
    passkey.set_aside("driver")
    asked = passkey.request()
    with passkey.begin("driver", asked) as attempt:
        assert prunable(edited.store) == ([], ["1 stage is at work and left alone"])
        attempt.finish({})
    assert paths(edited.store) == {
        f"pretrain/{pretrain.path.name}", f"passkey/{passkey.path.name}"
    }  # fmt: skip


def test_what_is_begun_while_the_user_thinks_is_left(edited: Scene) -> None:
    pretrain, passkey = edited.old
    agreed, _ = prunable(edited.store)
    edited.write(SWEEP)
    edited.record()
    removed, left = remove(edited.store, agreed)
    assert removed == 0
    assert len(left) == 2
    assert pretrain.is_done()
    assert passkey.is_done()


def test_a_stage_that_is_begun_at_the_last_moment_is_left(edited: Scene) -> None:
    _, passkey = edited.old
    passkey.set_aside("driver")
    [waste] = [w for w in prunable(edited.store)[0] if w.path == passkey.path]
    with passkey.begin("another", passkey.request() or {}):
        with pytest.raises(Exception, match="by another"):
            waste.remove()
        assert passkey.path.is_dir()


def test_a_stage_of_a_driver_that_was_killed_is_removed(edited: Scene) -> None:
    _, passkey = edited.old
    passkey.set_aside("driver")
    attempt = passkey.begin("driver", passkey.request() or {})
    attempt.heartbeat.stop()
    [waste] = [w for w in prunable(edited.store, 0.5)[0] if w.path == passkey.path]
    waste.remove()
    assert not passkey.path.exists()


def test_only_what_no_attempt_reads_again_goes_from_a_stage_that_stays(scene: Scene) -> None:
    scene.save(ROPE, finish=True)
    finished = scene.folder(ROPE)
    finished.set_aside("driver", "on request")
    unfinished = scene.save(NOPE, finish=False)
    partial = unfinished.paths.checkpoints / ".0001-000000003.abc"
    partial.mkdir()
    (partial / "model").write_text("half")
    assert paths(scene.store) == {str(partial.relative_to(scene.store.root))}, (
        "what was moved away is all that there is until the stage is done again"
    )
    scene.save(ROPE, finish=True)
    assert paths(scene.store) == {
        str(partial.relative_to(scene.store.root)),
        f"pretrain/{finished.path.name}/set-aside/0002",
    }
    remove(scene.store, prunable(scene.store)[0])
    assert not partial.exists()
    assert finished.is_done()
    assert finished.damage() == []
    resumed = unfinished.checkpoint()
    assert resumed is not None
    assert resumed.step == 2


def test_temporary_files_go_once_they_are_old(scene: Scene) -> None:
    new, old = (scene.store.root / "reports" / f".{name}.json.1.tmp" for name in ("new", "old"))
    for path in (new, old):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    assert paths(scene.store) == {"reports/.old.json.1.tmp"}


def test_two_that_remove_at_once_remove_each_thing_once(edited: Scene) -> None:
    agreed, _ = prunable(edited.store)
    results: list[object] = []

    def work() -> None:
        try:
            results.append(remove(edited.store, agreed))
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(isinstance(result, BaseException) for result in results), results
    assert not any(folder.path.exists() for folder in edited.old)
