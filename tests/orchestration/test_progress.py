"""What another process shows of a sweep's progress."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fope_lab.cli.render.status import print_states
from fope_lab.orchestration import live_view
from fope_lab.orchestration.live_view import progress_cells, seconds_text, summary
from fope_lab.orchestration.progress import observe_states, print_problems
from fope_lab.store import folder as stage_folder
from fope_lab.store.attempts import Ending, driver_name
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.plan import block_descendants

STAGES: list[Any] = [
    SimpleNamespace(
        kind="pretrain",
        key=key,
        label=key.upper(),
        parents=parents,
        missing_files=(),
        spec=SimpleNamespace(missing_resource=lambda root: None),
    )
    for key, parents in {"a": {}, "b": {"from": "a"}, "c": {}, "d": {}, "e": {}}.items()
]
SWEEP: Any = SimpleNamespace(stages=STAGES, by_section={}, seed_rule=None)


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
        attempt.heartbeat.stop()
    with folders["e"].begin("driver", {}) as attempt:
        attempt.finish({})
    monkeypatch.setattr(
        stage_folder.time, "sleep", lambda seconds: folders["c"].attempts.write_beat(1, 99)
    )
    return store


def test_only_a_stage_whose_heartbeat_moves_is_running(store: Store) -> None:
    states = observe_states([SWEEP], store)
    assert states["a"].status is Status.FAILED
    assert (states["b"].status, states["b"].reason) == (Status.BLOCKED, "A failed")
    assert (states["c"].status, states["c"].elsewhere) == (Status.RUNNING, False)
    assert (states["d"].status, states["d"].reason) == (
        Status.INTERRUPTED,
        "no heartbeat for 3 s; started by driver, still marked as running;"
        " another run takes it over after 16 s",
    )
    assert states["e"].is_done


def test_the_stage_of_a_driver_that_died_here_is_taken_sooner(store: Store) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    owner = driver_name().replace(f"-{os.getpid()}-", f"-{process.pid}-")
    store.folder("pretrain", "d").begin(owner, {}, supersede=1).heartbeat.stop()
    reason = observe_states([SWEEP], store)["d"].reason
    assert reason.endswith("; another run takes it over after 5 s")


def test_a_stage_that_ends_during_the_look_is_not_called_interrupted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that a new attempt took, whose counter happens to be the same."""

    def meanwhile(seconds: float) -> None:
        ends, taken = (store.folder("pretrain", key) for key in "cd")
        ends.attempts.end(1, Ending.FAILED, error="no luck either")
        taken.begin("driver", {}).heartbeat.stop()
        taken.attempts.write_beat(2, taken.attempts.beat(1))

    monkeypatch.setattr(stage_folder.time, "sleep", meanwhile)
    states = observe_states([SWEEP], store)
    assert (states["c"].status, states["c"].reason) == (Status.FAILED, "no luck either")
    assert states["d"].status is Status.RUNNING


def test_the_reason_of_every_problem_is_printed_whole(store: Store) -> None:
    folder, long = store.folder("pretrain", "c"), f"out of {'luck ' * 40}"
    folder.attempts.end(1, Ending.FAILED, error=f"{long}\nand of memory")
    (store.folder("pretrain", "e").path / "result.json").unlink()
    console = Console(width=80, file=io.StringIO())
    print_problems(STAGES, observe_states([SWEEP], store), store, console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"failed A: no luck (log: {store.folder('pretrain', 'a').paths.log})\n" in output
    assert output.endswith("\nblocked by them: 1 stage\n")
    assert f"failed C: {long}\nand of memory (log: " in output
    assert (
        "interrupted D: no heartbeat for 3 s; started by driver, still marked as running;" in output
    )
    assert "damaged E: finished earlier, but damaged or missing: result.json (log: " in output


def test_an_error_of_56_stages_is_printed_once_and_what_it_blocks_is_counted(
    tmp_path: Path,
) -> None:
    """The errors differ only in the stage's own label and folder."""
    store, states, stages = Store(tmp_path), {}, []
    for number in range(56):
        key, label = f"f{number}", f"pretrain[seed={number}]"
        folder = store.folder("pretrain", key)
        with pytest.raises(OSError, match="can't"), folder.begin("x", {}):
            raise OSError(f"{label}: can't read texts/one.txt for {folder.path}\nDenied.")
        states[key] = folder.state()
        stages.append(SimpleNamespace(kind="pretrain", key=key, label=label, parents={}))
    for number in range(127):
        key, parents = f"b{number}", {"model": f"f{number % 56}"}
        states[key] = StageState(Status.NOT_STARTED)
        stages.append(SimpleNamespace(kind="passkey", key=key, label=key, parents=parents))
    console = Console(width=80, file=io.StringIO())
    print_problems(stages, block_descendants(stages, states), store, console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    folder = store.folder("pretrain", "f0")
    assert output == (
        f"failed 56 stages: pretrain[seed=0]: can't read texts/one.txt for {folder.path}\nDenied.\n"
        "  pretrain[seed=0], pretrain[seed=1], pretrain[seed=2], pretrain[seed=3], … and 52 more"
        f" (log of the first: {folder.paths.log})\n"
        "blocked by them: 127 stages\n"
    )


def test_of_many_causes_the_first_are_printed(tmp_path: Path) -> None:
    store, console = Store(tmp_path), Console(width=80, file=io.StringIO())
    stages: Any = [
        SimpleNamespace(kind="pretrain", key=str(n), label=f"s{n}", parents={}) for n in range(5)
    ]
    states = {
        stage.key: StageState(Status.FAILED, f"error {'a' * n}") for n, stage in enumerate(stages)
    }
    print_problems(stages, states, store, console, most=3)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "failed s0: error ",
        "failed s1: error a",
        "failed s2: error aa",
        "failed 2 stages more, for 2 other reasons; see `fope-lab status`",
    ]


def test_an_interrupted_stage_has_no_time_left(store: Store) -> None:
    folder = store.folder("pretrain", "f")
    with folder.begin("x", {}) as attempt:
        attempt.writer.progress(50, 100, loss=2.0)
        running = progress_cells(SimpleNamespace(kind="pretrain", key="f"), folder.state(), store)  # type: ignore[arg-type]
    ended = progress_cells(SimpleNamespace(kind="pretrain", key="f"), folder.state(), store)  # type: ignore[arg-type]
    assert running[-1].endswith("left")
    assert ended[0] == running[0] == "50/100"
    assert ended[-1] == "stopped at step 50 of 100"


def test_a_finished_stage_shows_the_time_of_all_its_attempts(store: Store) -> None:
    folder = store.folder("pretrain", "e")
    done = json.loads(folder.paths.done.read_text()) | {"seconds": 60.0}
    shown = []
    for earlier in ({"attempts": 0, "seconds": 0.0}, {"attempts": 2, "seconds": 15.0}):
        folder.paths.done.write_text(json.dumps(done | {"earlier": earlier}))
        cells = progress_cells(SimpleNamespace(kind="pretrain", key="e"), folder.state(), store)  # type: ignore[arg-type]
        shown.append(cells[-1])
    assert shown == ["1:00", "1:15 over 3 attempts"]


def test_the_table_has_what_matters_most_first(store: Store) -> None:
    states = observe_states([SWEEP], store)
    console = Console(width=100, record=True, file=io.StringIO())
    print_states(STAGES, states, store, console)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[0] == "1 of 5 done, 1 failed, 1 running, 1 interrupted, 1 blocked"
    assert lines[2] == "A failed no luck"
    assert lines[3].startswith("C running 50/50 2.000")
    assert lines[4].startswith("D interrupted no heartbeat for 3 s; started")
    assert lines[5] == "B blocked A failed"
    assert lines[6].startswith("E done")


def test_a_run_counts_its_stages_and_tells_time() -> None:
    waiting, elsewhere = StageState(Status.WAITING), StageState(Status.RUNNING, elsewhere=True)
    done = StageState(Status.DONE, "cached")
    assert summary({"a": waiting, "b": done, "c": elsewhere}) == "1 of 3 done, 1 running, 1 waiting"
    assert live_view.state_text(elsewhere) == "running elsewhere"
    assert [seconds_text(s) for s in (None, 75, 3600)] == ["", "1:15", "1:00:00"]


def test_lines_about_stages_leave_out_what_the_first_axis_of_a_zip_determines(store: Store) -> None:
    """Outside a terminal, each change of a state is a line with the stage's short label."""
    stages: list[Any] = [
        SimpleNamespace(**{**vars(stage), "label": f"s[x={stage.key},y={stage.key}1,seed=0]"})
        for stage in STAGES[:2]
    ]
    waiting = {stage.key: StageState(Status.WAITING) for stage in stages}
    done = {stage.key: StageState(Status.DONE) for stage in stages}
    console = Console(file=(out := io.StringIO()), width=200)
    progress: Any = SimpleNamespace(stages=stages, store=store)
    with live_view._lines(progress, console) as show:
        for states in (waiting, done):
            now: Any = SimpleNamespace(states=states, waits=["a slot of 2 CPU"])
            show(now)
    assert [line.split()[1:] for line in out.getvalue().splitlines()] == [
        ["waiting", "for", "a", "slot", "of", "2", "CPU"],
        ["done", "s[x=a,seed=0]"],
        ["done", "s[x=b,seed=0]"],
    ]
