"""What another process shows of a sweep's progress."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fope_lab.orchestration import progress_view
from fope_lab.orchestration.progress_view import observe_states, seconds_text, states_table, summary
from fope_lab.store import StageState, Status, Store

STAGES: list[Any] = [
    SimpleNamespace(kind="pretrain", key=key, label=key.upper(), parents=parents)
    for key, parents in {"a": {}, "b": {"from": "a"}, "c": {}, "d": {}, "e": {}}.items()
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A failed, a blocked, a living, a dead and a finished stage."""
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="no luck"), store.folder("pretrain", "a").begin("x", {}):
        raise ValueError("no luck")
    folders = {key: store.folder("pretrain", key) for key in "cde"}
    living, dead = (folders[key].begin("driver", {}) for key in "cd")
    living.writer.progress(50, 50, loss=2.0)
    for attempt in (living, dead):
        attempt.lease.heartbeat.stop()
    with folders["e"].begin("driver", {}) as attempt:
        attempt.finish({})
    monkeypatch.setattr(
        progress_view.time, "sleep", lambda seconds: folders["c"].attempts.write_beat(1, 99)
    )
    return store


def test_only_a_stage_whose_heartbeat_moves_is_running(store: Store) -> None:
    states = observe_states(STAGES, store)
    assert states["a"].status is Status.FAILED
    assert (states["b"].status, states["b"].reason) == (Status.BLOCKED, "A failed")
    assert (states["c"].status, states["c"].reason) == (Status.RUNNING, "")
    assert (states["d"].status, states["d"].reason) == (
        Status.INTERRUPTED,
        "started by driver, still marked as running, but its heartbeat stands still",
    )
    assert states["e"].is_done


def test_the_table_has_what_matters_most_first(store: Store) -> None:
    states = observe_states(STAGES, store)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(states_table(STAGES, states, store, limit=4))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[0] == "1 of 5 done, 1 failed, 1 running, 1 interrupted, 1 blocked"
    assert lines[2] == "A failed no luck"
    assert lines[3].startswith("C running 50/50 2.000")
    assert lines[4] == "D interrupted"
    assert lines[5] == "B blocked A failed"
    assert lines[6] == "… and 1 more"


def test_a_run_counts_its_stages_and_tells_time() -> None:
    waiting, elsewhere = StageState(Status.WAITING), StageState(Status.RUNNING, "elsewhere")
    done = StageState(Status.DONE, "cached")
    assert summary({"a": waiting, "b": done, "c": elsewhere}) == "1 of 3 done, 1 running, 1 waiting"
    assert progress_view.state_text(elsewhere) == "running elsewhere"
    assert [seconds_text(s) for s in (None, 75, 3600)] == ["", "1:15", "1:00:00"]
