"""Overhead of the controller: a sweep through it, compared to the same stages as subprocesses.

    python benchmarks/controller.py [SWEEP.yaml] [--at-once 2]

Both sides run the same stages from empty stores on the same machine. The plain side starts a fresh
process for each stage, `--at-once` at a time, longest remaining path first according to the times
that the controller's side measured: the best order that can be known. The output is the wall times,
their ratio, and the share of the wall time that the cores were busy (from the processor times of
the whole machine, so nothing else should be running).
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fope_lab.orchestration.trial import KEY, OWNER, SUPERSEDE
from fope_lab.planning.schedule import remaining_path
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.sweep.graph import Stage

ONE_STAGE = """
import pickle, sys
from fope_lab.orchestration.trial import run_until_ended
from fope_lab.store.root import Store
config, stages, root = pickle.load(open(sys.argv[1], "rb"))
state = run_until_ended(config, stages, Store.create(root))
sys.exit(not state.is_done)
"""


def measured(work: Callable[[], None]) -> tuple[float, float]:
    """Return the wall seconds of `work`, and the share of all cores' time that was not idle."""

    def idle() -> float:
        times = psutil.cpu_times()
        return float(times.idle + getattr(times, "iowait", 0.0))

    before, started = idle(), time.monotonic()
    work()
    wall = time.monotonic() - started
    return wall, 1 - (idle() - before) / (wall * (os.cpu_count() or 1))


def through_controller(sweep: Path, store: Path) -> None:
    """Run `fope-lab run` completely: reading, Ray, stages, MLflow and report."""
    command = [sys.executable, "-m", "fope_lab.cli", "run", str(sweep), "--store", str(store)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def as_subprocesses(
    stages: tuple[Stage, ...], store: Store, seconds: dict[str, float], at_once: int
) -> None:
    """Run each stage in a process of its own, without Ray, MLflow and report."""
    urgency = remaining_path(stages, seconds)
    waiting = sorted(stages, key=lambda stage: urgency[stage.key], reverse=True)
    by_key = {stage.key: stage for stage in stages}
    running: dict[str, subprocess.Popen[bytes]] = {}
    done: set[str] = set()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            for stage in [s for s in waiting if set(s.parents.values()) <= done]:
                if len(running) < at_once:
                    waiting.remove(stage)
                    request = Path(folder) / stage.key
                    config = {KEY: stage.key, OWNER: "benchmark", SUPERSEDE: None}
                    arguments = (config, by_key, str(store.root))
                    request.write_bytes(pickle.dumps(arguments))
                    command = [sys.executable, "-c", ONE_STAGE, str(request)]
                    running[stage.key] = subprocess.Popen(command, env=environment)
            time.sleep(0.01)
            for key in [key for key, process in running.items() if process.poll() is not None]:
                if running.pop(key).returncode:
                    sys.exit(f"stage {key} failed; see its log.txt in {store.root}")
                done.add(key)


def main() -> None:
    """Measure both sides and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", nargs="?", type=Path, default=Path("sweeps/quickstart.yaml"))
    parser.add_argument("--at-once", type=int, default=os.cpu_count())
    options = parser.parse_args()
    stages = load_sweep(options.sweep).stages
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "controller"
        print(f"{options.sweep}: {len(stages)} stages, through the controller …", flush=True)
        wall, busy = measured(lambda: through_controller(options.sweep, store))
        print(f"  {wall:.1f} s, cores busy {busy:.1%}", flush=True)
        taken = {s.key: Store(store).folder(s.kind, s.key).time_taken() for s in stages}
        seconds = {key: 0.0 if one is None else one.seconds for key, one in taken.items()}
        plain = Store(Path(folder) / "plain")
        print(f"as plain subprocesses, {options.at_once} at a time …", flush=True)
        plain_wall, plain_busy = measured(
            lambda: as_subprocesses(stages, plain, seconds, options.at_once)
        )
        print(f"  {plain_wall:.1f} s, cores busy {plain_busy:.1%}")
        print(f"ratio of wall times, controller to plain: {wall / plain_wall:.3f}")


if __name__ == "__main__":
    main()
