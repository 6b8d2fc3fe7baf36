"""A trial's attempt at a stage, where others may have been quicker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fope_lab.orchestration.trial import KEY, OWNER, SUPERSEDE, run_attempt
from fope_lab.store import Status, Store


def attempt_of(owner: str, store: Store) -> Status:
    stage: Any = SimpleNamespace(
        kind="pretrain",
        key="key",
        spec=SimpleNamespace(version=1),
        config={},
        parents={},
        checkpoints={},
    )
    return run_attempt({KEY: "key", OWNER: owner, SUPERSEDE: None}, {"key": stage}, store)


def test_a_stage_that_another_driver_holds_is_left_to_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.folder("pretrain", "key").begin("other", {}):
        assert attempt_of("me", store) is Status.RUNNING


def test_a_stage_that_another_driver_has_just_finished_is_done(tmp_path: Path) -> None:
    """The searcher saw it free; it was taken and finished before the trial came to it."""
    store = Store(tmp_path / "store")
    folder = store.folder("pretrain", "key")
    with folder.begin("other", {}) as attempt:
        attempt.finish({})
    assert attempt_of("me", store) is Status.DONE
    assert folder.attempts.newest_token() == 1
