"""`fope-lab store verify` names damaged files, and --repair has the next run do the stage again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.cli import main
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import Status


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def stage(store: Store, key: str, *, finish: bool) -> StageFolder:
    folder = store.folder("pretrain", key)
    with folder.begin("driver", {}) as attempt:
        for step in (1, 2):
            attempt.writer.log(step, {"loss": 1.0 / step})
            attempt.writer.save_checkpoint(
                step, lambda path: path.joinpath("model").write_text("w")
            )
        if finish:
            attempt.finish({})
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """One stage that is whole, one whose checkpoint is damaged, one interrupted, one lost rows."""
    store = Store.create(tmp_path / "my [bold] store")
    stage(store, "a", finish=True)
    flip(stage(store, "b", finish=True).path / "checkpoint/0001-000000002/model")
    flip(stage(store, "c", finish=False).path / "metrics/0001-000000001.jsonl")
    (stage(store, "d", finish=True).path / "metrics/0001-000000000.jsonl").write_text("")
    return store


def verify(store: Store, *options: str) -> int:
    return main(["store", "verify", "--store", str(store.root), *options])


def test_what_is_damaged_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(store) == 1
    root = store.root
    assert capsys.readouterr().out.splitlines() == [
        f"damaged {root}/pretrain/b: checkpoint/0001-000000002/model; --repair moves its output"
        " away, and the next run repeats the stage",
        f"damaged {root}/pretrain/c: metrics/0001-000000001.jsonl; the next run does not use it",
        f"damaged {root}/pretrain/d: metrics/0001-000000000.jsonl; the next run does not use it",
        f"{root}: 4 stages, 3 damaged",
    ]


def test_a_store_without_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store.create(tmp_path)
    stage(store, "a", finish=True)
    assert verify(store) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1 stage, none damaged\n"


def test_a_repaired_stage_is_done_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store.folder("pretrain", "b")
    assert verify(store, "--repair") == 1
    assert f"model; moved to {folder.path}/set-aside/0002\n" in capsys.readouterr().out
    assert (folder.path / "set-aside/0002/checkpoint/0001-000000002/model").exists()
    state = folder.state()
    assert state.status is Status.NOT_STARTED
    assert state.reason == "to be re-run: damaged: checkpoint/0001-000000002/model"
    assert store.folder("pretrain", "a").is_done()


def test_a_stage_that_lost_rows_is_done_again_from_a_checkpoint_before_them(store: Store) -> None:
    folder = store.folder("pretrain", "d")
    assert folder.state().reason == (
        "finished earlier, but damaged or missing: metrics/0001-000000000.jsonl"
    )
    with folder.begin("driver", {}) as attempt:
        assert attempt.writer.resumed_from is None
    with store.folder("pretrain", "c").begin("driver", {}) as attempt:
        assert attempt.writer.resumed_from is not None
        assert attempt.writer.resumed_from.step == 1
