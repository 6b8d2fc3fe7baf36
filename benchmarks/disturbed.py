"""Two drivers on one store, with random kills, suspensions and damaged files, beside a quiet run.

    python benchmarks/disturbed.py [--minutes 60] [--seed 0] [--folder DIR]

A quiet run fills a store. Then, round after round, two drivers run the same sweep on a fresh store
while they are killed, suspended for longer than a lease, and files that they have written are
damaged. A round ends with `fope-lab store verify --repair` and one more run. Then every stage must
be done, `store verify` must find no damage, and rows, results and checkpoints must be those of the
quiet run, bit by bit, but for times. The output is a line for each round and the counts of all. The
exit code is 1 if any round differed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from fope_lab.stages.training import TRAINING_RECORD
from fope_lab.store.checkpoint import list_checkpoints
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep

SWEEP = """
name: disturbed
seeds: [0]
stages:
  pretrain:
    kind: pretrain
    model: {num_layers: 1, num_heads: 2, head_dim: 16, intermediate_size: 64}
    embedding: rope
    data: {corpus: python-docs, length: 32}
    train: {tokens: 1536000, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 100,
            log_every: 10}
  extend:
    kind: extend
    from: pretrain
    data: {corpus: python-docs, length: 64}
    train: {tokens: 512000, batch_tokens: 512, learning_rate: 1e-3, checkpoint_every: 100,
            log_every: 10}
  before: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 64], tokens: 4096}
  after: {kind: perplexity, from: extend, corpus: python-docs, lengths: [32, 64], tokens: 4096}
grid:
  pretrain.embedding: [rope, alibi]
"""
VOLATILE = re.compile(r"second|time|memory|host|^pid$")
DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda content: None,
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytes(len(content)),
    "bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]) if content else None,
    "{}": lambda content: b"{}",
    "[]": lambda content: b"[]",
}


class Round:
    """Two drivers on a store of their own, and what happens to them."""

    def __init__(self, folder: Path, sweep: Path, chance: random.Random) -> None:
        self.store, self.sweep, self.chance = Store.create(folder), sweep, chance
        self.stages = load_sweep(sweep).stages
        self.log = folder.with_suffix(".log")
        self.counts: Counter[str] = Counter()
        self.drivers: dict[int, subprocess.Popen[bytes]] = {}
        self.resume_at: dict[int, tuple[float, list[psutil.Process]]] = {}

    def start(self, slot: int) -> None:
        command = [sys.executable, "-m", "fope_lab.cli", "run", str(self.sweep)]
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        with self.log.open("ab") as log:
            self.drivers[slot] = subprocess.Popen(
                [*command, "--store", str(self.store.root)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def kill(self, slot: int) -> None:
        self.counts["kills"] += 1
        self.drivers[slot].send_signal(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))

    def kill_worker(self, slot: int) -> None:
        running = [f for f in self.folders() if (a := f.attempts.newest()) and a.end is None]
        for folder in self.chance.sample(running, min(1, len(running))):
            newest = folder.attempts.newest()
            with contextlib.suppress(OSError, TypeError, AttributeError):
                os.kill(newest.details["pid"], signal.SIGKILL)  # type: ignore[union-attr]
                self.counts["kills of workers"] += 1

    def suspend(self, slot: int) -> None:
        if slot in self.resume_at:
            return
        self.counts["suspensions"] += 1
        with contextlib.suppress(psutil.Error):
            driver = psutil.Process(self.drivers[slot].pid)
            processes = [driver, *driver.children(recursive=True)]
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
            self.resume_at[slot] = (time.monotonic() + self.chance.uniform(2, 40), processes)

    def damage(self, slot: int) -> None:
        files = [path for folder in self.folders() for path in closed_files(folder)]
        if not files:
            return
        path, kind = self.chance.choice(files), self.chance.choice(list(DAMAGE))
        with contextlib.suppress(OSError):
            content = DAMAGE[kind](path.read_bytes())
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            self.counts["damaged files"] += 1

    def folders(self) -> list[StageFolder]:
        return [self.store.folder(stage.kind, stage.key) for stage in self.stages]

    def run(self, until: float) -> None:
        """Disturb both drivers some times, let them finish, repair what is left, and run again."""
        for slot in (0, 1):
            self.start(slot)
        self.wait_for_work()
        left = self.chance.randint(6, 18)
        while any(driver.poll() is None for driver in self.drivers.values()) or left > 0:
            time.sleep(self.chance.uniform(0.5, 6))
            self.wake()
            for slot, driver in self.drivers.items():
                if driver.poll() not in (None, 0) or (driver.poll() == 0 and left > 0):
                    self.start(slot)
            if time.monotonic() > until:
                left = 0
            if left > 0:
                left -= 1
                actions = (self.kill, self.kill_worker, self.suspend, self.damage, self.damage)
                self.chance.choice(actions)(self.chance.choice((0, 1)))
        self.wake(now=True)
        self.command("store", "verify", "--repair", "--store", str(self.store.root))
        self.start(0)
        self.drivers[0].wait()

    def wait_for_work(self) -> None:
        """Wait until a stage is finished: before, there is little to disturb."""
        while not any(folder.is_done() for folder in self.folders()):
            time.sleep(0.5)

    def wake(self, *, now: bool = False) -> None:
        for slot, (at, processes) in list(self.resume_at.items()):
            if now or time.monotonic() > at:
                del self.resume_at[slot]
                for process in processes:
                    with contextlib.suppress(psutil.Error):
                        process.resume()

    def command(self, *words: str) -> int:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "fope_lab.cli", *words]
            return subprocess.run(command, stdout=log, stderr=log, check=False).returncode

    def end(self) -> None:
        for driver in self.drivers.values():
            if driver.poll() is None:
                driver.kill()
                driver.wait()


def closed_files(folder: StageFolder) -> list[Path]:
    """The files of a stage that no process has open for writing."""
    if folder.is_done():
        return [path for path in folder.path.rglob("*") if path.is_file()]
    checkpoints = list_checkpoints(folder.paths)
    files = [path for c in checkpoints for path in c.path.rglob("*") if path.is_file()]
    rows = [folder.path / name for c in checkpoints[:1] for name in c.segments() or {}]
    return [*files, *rows]


def content(folder: StageFolder) -> Any:
    """All that a stage has measured and left, without times."""
    checkpoint = folder.final_checkpoint()
    files = sorted(checkpoint.path.rglob("*")) if checkpoint else []
    return {
        "done": folder.is_done(),
        "rows": [[row.step, without_times(row.values)] for row in folder.rows()],
        "result": without_times(folder.result()),
        "files": {path.name: file_content(path) for path in files if path.is_file()},
    }


def file_content(path: Path) -> Any:
    if path.name == TRAINING_RECORD:
        return without_times(json.loads(path.read_text()))
    return None if path.name == "manifest.json" else path.read_bytes()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not VOLATILE.search(k)}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    base = options.folder or Path(tempfile.mkdtemp(prefix="disturbed-"))
    base.mkdir(parents=True, exist_ok=True)
    sweep = base / "disturbed.yaml"
    sweep.write_text(SWEEP)
    quiet = Round(base / "quiet", sweep, random.Random(0))
    quiet.start(0)
    assert quiet.drivers[0].wait() == 0, f"see {quiet.log}"
    expected = [content(folder) for folder in quiet.folders()]
    until = time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    number = different = 0
    while time.monotonic() < until:
        disturbed = Round(base / str(number), sweep, random.Random(f"{options.seed} {number}"))
        started = time.monotonic()
        try:
            disturbed.run(until)
        finally:
            disturbed.wake(now=True)
            disturbed.end()
        found = [content(folder) for folder in disturbed.folders()]
        damaged = disturbed.command("store", "verify", "--store", str(disturbed.store.root))
        wrong = [
            stage.label
            for stage, one, other in zip(disturbed.stages, found, expected, strict=True)
            if one != other
        ]
        counts += disturbed.counts
        different += bool(wrong or damaged)
        attempts = sum(folder.attempts.newest_token() for folder in disturbed.folders())
        verdict = f"DIFFERS: {', '.join(wrong)}" if wrong else "equal"
        print(
            f"round {number}: {time.monotonic() - started:.0f} s, {dict(disturbed.counts)},"
            f" {attempts} attempts at {len(found)} stages, {verdict}"
            f"{', DAMAGED' if damaged else ''}",
            flush=True,
        )
        number += 1
    print(f"{number} rounds, {different} different; {dict(counts)}; {base}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
