"""Time of reading and planning a sweep: the commands' wall time, and grids of up to 20,000 stages.

    python benchmarks/planning.py [SWEEP.yaml]

Each figure is the median of several runs. The commands are fresh processes, including the start-up
of Python; aim: under 2 seconds. The grid of 1,000 stages is read and planned inside this process;
aim: also under 2 seconds. A grid of the largest size that a sweep has by default is read once, with
the memory that this takes; aim: under 10 seconds and 500 MB.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fope_lab.sweep import load_sweep, plan

RUNS = 5
GRID = """
name: grid
seeds: [0, 1, 2, 3, 4]
stages:
  pretrain:
    kind: pretrain
    model: {scale: tiny}
    embedding: rope
    data: {corpus: python-docs, length: 64}
    train: {tokens: 1e6, batch_tokens: 2048, learning_rate: 1e-3}
  perplexity: {kind: perplexity, from: pretrain, corpus: python-docs, lengths: [32, 64, 128]}
  passkey: {kind: passkey, from: pretrain, form: symbolic, lengths: [32, 64, 128]}
grid:
  pretrain.embedding: [nope, alibi, rope, fope]
  pretrain.train.learning_rate: [1e-3, 2e-3, 3e-3, 4e-3]
  pretrain.model.num_layers: [1, 2, 3, 4, 5]
"""


def largest() -> str:
    """GRID with 20,000 stages, three for each grid point."""
    rates = ", ".join(f"{i}e-6" for i in range(1, 267))
    grid = GRID.replace("1e-3, 2e-3, 3e-3, 4e-3", rates)
    return grid.replace("[nope, alibi, rope, fope]", "[rope]")


def seconds(work: Callable[[], object]) -> float:
    """Return the median wall time of RUNS runs in seconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def command(*arguments: str) -> float:
    """The median wall time of a fope-lab command in a process of its own."""
    line = [sys.executable, "-m", "fope_lab.cli", *arguments]
    return seconds(lambda: subprocess.run(line, check=True, capture_output=True))


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sweep", nargs="?", default="sweeps/quickstart.yaml")
    sweep = parser.parse_args().sweep
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        for arguments in (["--help"], ["validate", sweep], ["plan", sweep, "--store", store]):
            print(f"fope-lab {' '.join(arguments[:2]):40} {command(*arguments):6.2f} s")
        path = Path(folder) / "grid.yaml"
        path.write_text(GRID, encoding="utf-8")
        grid = load_sweep(path)
        name = f"{len(grid.stages)} stages"
        print(f"{'load_sweep, ' + name:49} {seconds(lambda: load_sweep(path)):6.2f} s")
        Path(store).mkdir()
        print(f"{'plan, ' + name:49} {seconds(lambda: plan(grid, store)):6.2f} s")
        path.write_text(largest(), encoding="utf-8")
        for arguments in (["validate", str(path)], ["plan", str(path), "--store", store]):
            start = time.perf_counter()
            line = [sys.executable, "-m", "fope_lab.cli", *arguments]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
            taken = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            name = f"fope-lab {arguments[0]}, 20,000 stages"
            print(f"{name:49} {taken:6.2f} s, {memory:.0f} MB at most so far")


if __name__ == "__main__":
    main()
