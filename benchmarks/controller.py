"""Overhead of the controller: stages that only rest, through it and through plain Ray Tune.

    python benchmarks/controller.py [--stages 300 1000 5000] [--slots 2] [--seconds 0]
    python benchmarks/controller.py --stages 1280 --slots 64 --seconds 10

For each number of slots, a Ray of its own pretends to have as many CPUs. `fope-lab run` runs a
sweep of stages that rest for some seconds and leave an empty result, and beside it plain Ray Tune
runs as many independent trials that rest as long, with the same settings of Ray. The store says
when each stage began and ended, and in which process. The output is, for each side, the wall time
of a stage, the share of the slots' time in which a stage was at work, how many processes did the
work and when the last of them began, and the driver's processor time and greatest memory. Where
plain Tune takes twice as long, it is stopped, and the trials that had ended are counted. Nothing
else should be running.

This file is also the plug-in that the sweep names: it defines the kind of stage `rest`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.orchestration.cluster_address import LOCAL
from fope_lab.stages.base import StageConfig
from fope_lab.stages.metric import ResultRecord
from fope_lab.store.root import Store
from fope_lab.store.writer import RunWriter

SWEEP = """\
name: rest
description: Stages that only rest.
plugins: [{plugin}]
stages:
  rest: {{kind: rest, seconds: {seconds}, number: 0}}
grid:
  rest.number: [{numbers}]
"""
PLAIN = """
import json, os, sys, time
from fope_lab.orchestration.cluster_address import prepare_environment
stages, seconds, address, folder = int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:5]
prepare_environment(address)
import ray
from ray import tune
ray.init(address=address, logging_level="ERROR", log_to_driver=False)
def rest(config):
    began = time.time()
    time.sleep(seconds)
    tune.report({"began": began, "ended": time.time(), "process": os.getpid()})
    open(f"{folder}/{config['number']}.ended", "w").close()
started = time.time()
found = tune.Tuner(
    tune.with_resources(rest, {"cpu": 1}),
    param_space={"number": tune.grid_search(list(range(stages)))},
    tune_config=tune.TuneConfig(reuse_actors=True),
    run_config=tune.RunConfig(storage_path=folder, verbose=0),
).fit()
names = ("began", "ended", "process")
json.dump([[one.metrics[name] for name in names] for one in found], open(sys.argv[5], "w"))
ray.shutdown()
"""


@dataclass(frozen=True, kw_only=True)
class Rest(StageConfig, kind="rest"):
    """Do nothing for some seconds."""

    version = 1
    entry_point = f"{__name__}:rest"

    seconds: float
    number: int

    def stands_alone(self) -> bool:
        """It needs no model."""
        return True


def rest(config: Rest, writer: RunWriter, parents: Mapping[str, Path]) -> dict[str, Any]:
    """Do nothing for some seconds; the work of a stage."""
    time.sleep(config.seconds)
    return ResultRecord().as_json()


@dataclass(frozen=True)
class Side:
    """What one side took; each of `work` is when a stage began and ended, and its process."""

    wall: float
    processor: float
    memory: int
    work: Sequence[tuple[float, float, int]]

    def row(self, name: str, slots: int) -> str:
        """A line of the table. A slot's time begins when its process begins its first stage."""
        began, ended = min(one[0] for one in self.work), max(one[1] for one in self.work)
        firsts = sorted(
            min(one[0] for one in self.work if one[2] == process)
            for process in {one[2] for one in self.work}
        )
        there = sum(ended - first for first in firsts[:slots])
        busy = sum(end - begin for begin, end, _ in self.work) / there
        each = 1000 / len(self.work)
        return (
            f"  {name:<12} {(ended - began) * each:8.1f} ms a stage   {busy:6.1%} busy  "
            f" {len(firsts):4} processes in {firsts[-1] - began:5.1f} s   driver: "
            f"{self.processor * each:6.1f} ms a stage, {self.memory / 1e6:6,.0f} MB   "
            f"(all: {self.wall:,.1f} s)"
        )


def watched(command: Sequence[str], limit: float | None = None) -> tuple[float, float, int]:
    """Run a command; returns its wall and processor seconds, and its greatest memory in bytes.
    Raises TimeoutExpired if it takes more than `limit` seconds, and kills it."""
    started = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    timer = threading.Timer(limit or threading.TIMEOUT_MAX, process.kill)
    timer.daemon = True
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    if limit is not None and time.monotonic() - started > limit:
        raise subprocess.TimeoutExpired(command, limit)
    if status:
        sys.exit(f"{' '.join(command[:4])} … ended with {os.waitstatus_to_exitcode(status)}")
    seconds = usage.ru_utime + usage.ru_stime
    return time.monotonic() - started, seconds, usage.ru_maxrss * 1024


def through_controller(stages: int, seconds: float, address: str, folder: Path) -> Side:
    """Run a sweep of so many stages, from an empty store."""
    path, root = folder / "rest.yaml", folder / "store"
    numbers = ", ".join(map(str, range(stages)))
    path.write_text(SWEEP.format(plugin=Path(__file__), seconds=seconds, numbers=numbers))
    command = [sys.executable, "-m", "fope_lab.cli", "run", str(path), "--store", str(root)]
    found = watched([*command, "--address", address])
    work = []
    for stage in Store(root).folders():
        attempt = stage.attempts.newest()
        assert attempt is not None
        assert attempt.end is not None
        began, ended = attempt.details["started"], attempt.end["time"]
        work.append((began, ended, int(attempt.details["pid"])))
    return Side(*found, work)


def through_tune(stages: int, seconds: float, address: str, folder: Path, limit: float) -> Side:
    """Run as many independent trials of plain Ray Tune. Raises TimeoutExpired after the limit."""
    results = folder / "work.json"
    (folder / "tune").mkdir()
    given = (stages, seconds, address, folder / "tune", results)
    found = watched([sys.executable, "-c", PLAIN, *map(str, given)], limit)
    return Side(*found, [(b, e, int(p)) for b, e, p in json.loads(results.read_text())])


def main() -> None:
    """Measure both sides of each case and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stages", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--slots", type=int, nargs="+", default=[2])
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.0])
    options = parser.parse_args()
    for slots in options.slots:
        for seconds in options.seconds:
            for stages in options.stages:
                print(f"{stages:,} stages of {seconds:g} s on {slots} slots", flush=True)
                folder = tempfile.TemporaryDirectory(prefix="controller-")
                with folder as name, ray_with(slots) as address:
                    side = through_controller(stages, seconds, address, Path(name))
                    print(side.row("controller", slots), flush=True)
                    try:
                        side = through_tune(stages, seconds, address, Path(name), 2 * side.wall)
                        print(side.row("plain Tune", slots), flush=True)
                    except subprocess.TimeoutExpired as over:
                        ended = len([*Path(name).glob("tune/*.ended")])
                        text = f"stopped after {over.timeout:.0f} s, {ended:,} trials had ended"
                        print(f"  plain Tune   {text}", flush=True)


@contextlib.contextmanager
def ray_with(slots: int) -> Iterator[str]:
    """The address of a Ray with so many CPUs, which it may only pretend to have."""
    if slots == os.cpu_count():
        yield LOCAL
        return
    ray = str(Path(sys.executable).with_name("ray"))
    command = [ray, "start", "--head", "--port=6399", f"--num-cpus={slots}"]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    environment = {**os.environ, "RAY_prestart_worker_first_driver": "0"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield "127.0.0.1:6399"
    finally:
        subprocess.run([ray, "stop"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
