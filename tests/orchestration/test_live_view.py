"""The live view of a run with 500 stages, in a terminal of any size."""

from __future__ import annotations

import io
import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from rich.console import Console

from fope_lab.orchestration import live_view as viewing
from fope_lab.orchestration.live_view import LiveScreen, live_view
from fope_lab.orchestration.progress import RunProgress, Snapshot
from fope_lab.planning.schedule import Demand
from fope_lab.store.root import Store
from fope_lab.store.state import CACHED, StageState, Status
from fope_lab.sweep import Sweep, load_sweep
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import block_descendants
from fope_lab.tracking.outline import run_names

SWEEP = """
name: five-hundred
seeds: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {task: passkey, length: 32}
    train: {tokens: 10240, batch_tokens: 256, learning_rate: 1e-3}
  passkey: {kind: passkey, from: pretrain, form: symbolic, lengths: [32], trials: 20}
  passkey-long: {kind: passkey, from: pretrain, form: symbolic, lengths: [64], trials: 20}
  needle: {kind: needle, from: pretrain, lengths: [512], trials: 20, corpus: python-docs}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32], tokens: 4096}
grid:
  pretrain.embedding: [nope, alibi, rope, fope, {type: p-rope, p: 0.25}]
  pretrain.train.learning_rate: [1e-3, 3e-3]
"""
ERROR = "the loss is not a number at step 3 of 40: try a lower learning rate, or a longer warm-up"
COLUMNS, ROWS = 100, 30


@dataclass
class Terminal:
    """A screen that takes what rich writes; `scrolled` counts the lines that left it at the top.

    Anything that it does not know is an error.
    """

    columns: int = COLUMNS
    rows: int = ROWS
    scrolled: int = 0
    lines: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    highest: int = 0

    def write(self, text: str) -> None:
        for control, count, word, plain in re.findall(
            r"\x1b\[(\??)([\d;]*)([A-Za-z])|([\r\n]|[^\x1b\r\n]+)", text
        ):
            if plain:
                self._print(plain)
            elif word == "A":
                self.row = max(self.row - int(count), 0)
            elif word == "K":
                self.lines[self.row] = ""
            elif word == "J":
                self.lines, self.row = [""], 0
            else:
                assert (control, word) == ("?", "h") or word in "mlH", (control, count, word)

    def _print(self, plain: str) -> None:
        if plain == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
            while len(self.lines) > self.rows:
                del self.lines[0]
                self.row, self.scrolled = self.row - 1, self.scrolled + 1
        elif plain != "\r":
            self.lines[self.row] += plain
            assert len(self.lines[self.row]) <= self.columns, self.lines[self.row]


@dataclass
class Run:
    """A sweep of 500 stages in the middle: 100 cached, 30 done, 12 running, 4 failed."""

    sweep: Sweep
    store: Store
    states: dict[str, StageState]
    time: float = 0.0
    slots: Sequence[tuple[Demand, float]] = ()

    def progress(self, forecast: float | None = 10.0) -> RunProgress:
        forecasts = {stage.key: forecast for stage in self.sweep.stages}
        return RunProgress(
            self.sweep.stages,
            self.store,
            forecasts,
            lambda: {"CPU": 12.0},
            lambda: self.slots,
            lambda: self.time,
        )

    def lines(self, now: Snapshot, width: int = COLUMNS, height: int = ROWS) -> list[str]:
        """What the screen shows in a terminal of this size."""
        screen = LiveScreen(self.sweep.stages, run_names(self.sweep.stages), now)
        console = Console(file=(out := io.StringIO()), width=width, height=height)
        console.print(screen.draw(width, height))
        return out.getvalue().splitlines()


def finish(store: Store, stage: Stage, seconds: float) -> None:
    folder = store.folder(stage.kind, stage.key)
    with folder.begin("test", {}) as attempt:
        attempt.finish({})
    done = json.loads(folder.paths.done.read_text())
    folder.paths.done.write_text(json.dumps(done | {"seconds": seconds}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "sweep.yaml").write_text(SWEEP)
    sweep = load_sweep(folder / "sweep.yaml")
    assert len(sweep.stages) > 500
    store = Store.create(folder / "store")
    trainings = [stage for stage in sweep.stages if stage.kind == "pretrain"]
    states = {stage.key: StageState(Status.WAITING) for stage in sweep.stages}
    for stage in sweep.stages:
        if stage.kind == "prepare-data":
            finish(store, stage, 5.0)
            states[stage.key] = CACHED
    for stage in trainings[:50]:
        finish(store, stage, 20.0)
        states[stage.key] = CACHED if stage in trainings[:20] else StageState(Status.DONE)
    attempts = []
    for stage in trainings[50:62]:
        attempt = store.folder(stage.kind, stage.key).begin("test", {})
        used = {"flops_utilisation": 0.412} if stage is trainings[50] else {}
        attempt.writer.progress(20, 40, loss=2.5, tokens_per_second=51200.0, **used)
        told = json.loads(attempt.writer.paths.progress.read_text())
        attempt.writer.paths.progress.write_text(json.dumps(told | {"seconds": 10.0}))
        attempts.append(attempt)
        states[stage.key] = StageState(Status.RUNNING)
    for number, stage in enumerate(trainings[62:66]):
        with (
            pytest.raises(ValueError, match="no"),
            store.folder(stage.kind, stage.key).begin("test", {}),
        ):
            raise ValueError(ERROR if number else f"no such file: {'x' * 120}.txt")
        states[stage.key] = store.folder(stage.kind, stage.key).state()
    yield Run(sweep, store, block_descendants(sweep.stages, states))
    for attempt in attempts:
        attempt.release()


@pytest.fixture
def now(run: Run) -> Snapshot:
    run.time = 0.0
    progress = run.progress()
    progress.snapshot(run.states)
    run.time = 60.0
    return progress.snapshot(run.states)


def test_at_100_by_30_all_that_matters_is_there(run: Run, now: Snapshot) -> None:
    lines = run.lines(now)
    counts = re.fullmatch(
        r"(\d+) of (\d+) done, 4 failed, 12 running, (\d+) waiting, 16 blocked", lines[0].rstrip()
    )
    assert counts
    assert sum(map(int, [counts[1], counts[3]])) + 4 + 12 + 16 == int(counts[2])
    assert re.search(r"━ +\d+% of the work +1:00 so far, about \d+:\d\d left", lines[1])
    running = [line for line in lines if "20/40" in line]
    assert len(running) == 12
    assert all("2.500" in row and "51,200 tok/s" in row for row in running)
    assert [row.rstrip().endswith("41% MFU") for row in running] == [True] + 11 * [False]
    assert any(line.startswith("failed 3 stages: the loss is not a number") for line in lines)
    assert "blocked by them: 16 stages" in map(str.rstrip, lines)


def test_what_has_been_waited_for_for_long_is_told(run: Run) -> None:
    demand, group = Demand({"CPU": 4, "GPU": 1}, 1.0), Demand({"CPU": 8}, 1.0, 2)
    run.slots = [(demand, 30.4), (demand, 4.0), (Demand({"CPU": 1}, 1.0), 9.0), (group, 70.0)]
    try:
        lines = [line.rstrip() for line in run.lines(run.progress().snapshot(run.states))]
    finally:
        run.slots = ()
    has = "the cluster has 12 CPU, 0 GPU"
    assert [line for line in lines if line.startswith("waiting for")] == [
        f"waiting for 2 slots of 4 CPU, 1 GPU each, asked for 30 s ago; {has}",
        f"waiting for a slot of 8 CPU for 2 workers, asked for 70 s ago; {has}",
    ]


def test_the_time_left_follows_from_what_has_run(run: Run, now: Snapshot) -> None:
    """Each training took 20 s where the plan said 10; evaluations are corrected by that ratio."""
    unfinished = [
        stage
        for stage in run.sweep.stages
        if run.states[stage.key].status in (Status.WAITING, Status.RUNNING)
    ]
    work = sum(20.0 for stage in unfinished)
    assert now.time_left.unknown == 0
    assert now.time_left.seconds == pytest.approx(work / 12, rel=0.2)
    assert 0 < now.time_left.share < 1


def test_a_time_that_nobody_knows_is_unknown(run: Run) -> None:
    now = run.progress(forecast=None).snapshot(run.states)
    assert now.time_left.unknown > 300  # evaluations, none of which has run
    assert "stages of unknown length" in " ".join(run.lines(now))


@pytest.mark.parametrize("width", [60, 79, 80, 100, 250])
def test_no_line_is_wider_than_the_terminal(run: Run, now: Snapshot, width: int) -> None:
    assert all(len(line) <= width for line in run.lines(now, width, 70))


def test_a_small_terminal_shows_the_counts_what_failed_and_what_runs(
    run: Run, now: Snapshot
) -> None:
    lines = run.lines(now, 60, 14)
    assert "4 failed" in lines[0]
    assert sum("51,200" in line for line in lines) > 5
    assert any(line.startswith("failed ") for line in lines)


def test_it_stays_in_its_place_and_is_gone_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a screen full of other lines, in a terminal that becomes smaller and larger again."""
    terminal, file = Terminal(), io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None)
    sizes = itertools.chain([(100, 30)] * 3, [(70, 20)] * 2, itertools.repeat((100, 30)))
    frames: list[list[str]] = []
    show = viewing.Live.update

    def update(self: Any, *arguments: Any, **options: Any) -> None:
        show(self, *arguments, **options)
        terminal.write(file.getvalue())
        file.seek(0)
        file.truncate()
        frames.append(list(terminal.lines))
        console.width, console.height = next(sizes)

    console.width, console.height = next(sizes)
    monkeypatch.setattr(viewing.Live, "update", update)
    monkeypatch.setattr(viewing, "REFRESH_SECONDS", 0.01)
    terminal.write("\n".join(f"line {i}" for i in range(29)) + "\n")
    with live_view(run.progress(), lambda: run.states, console):
        while len(frames) < 8:
            time.sleep(0.001)  # and leave the processor to the view
    scrolled = terminal.scrolled
    assert scrolled <= ROWS  # by the first frame, to make room for it
    for frame in frames:
        assert len(frame) <= ROWS
        assert sum("done, 4 failed" in line for line in frame) == 1
    terminal.write(file.getvalue())
    assert not any("done, 4 failed" in line for line in terminal.lines)
