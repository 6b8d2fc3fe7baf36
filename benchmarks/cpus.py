"""Tokens per second of one training on two CPUs, two trainings on one each, and one on one.

    python benchmarks/cpus.py [--shapes mini 20m] [--seconds 20] [--json FILE]

Each training is a process with as many threads as `resources: {cpus: n}` gives it; all of a
configuration train at once, and configurations take turns, one after the other. The figure is the
sum over the trainings of a configuration, the median of the rounds. It says something about the
threads only on a machine where nothing else runs: threads wait for each other at every operation,
so that one whose core is shared holds up all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from contestants import SHAPES, rows_of, start_model
from torch import nn

from fope_lab.config.atomic_files import write_atomic
from fope_lab.config.processor import processor
from trainers.optimizer import decay_groups, kept_memory

CONFIGURATIONS = {"one on 2 CPUs": [2], "two on 1 CPU each": [1, 1], "one on 1 CPU": [1]}
"""The threads of each training."""
WARM_UP = 2


def speed(name: str, threads: int, seconds: float) -> float:
    """Tokens per second of a training with so many threads, for about so many seconds."""
    torch.set_num_threads(threads)
    shape = SHAPES[name]
    model = start_model(shape)
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-4, fused=True)
    tokens = torch.randint(shape.config.vocab_size, (64 * shape.rows, shape.length + 1))
    started, step = 0.0, 0
    with kept_memory(torch.device("cpu")):
        while step <= WARM_UP or time.perf_counter() < started + seconds:
            if step == WARM_UP:
                started = time.perf_counter()
            rows = rows_of(tokens, shape, step)
            loss = model(rows[:, :-1], labels=rows[:, 1:]).loss
            assert loss is not None
            torch.autograd.backward(loss / shape.batch_tokens)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
        taken = time.perf_counter() - started
    return (step - WARM_UP) * shape.batch_tokens / taken


def together(name: str, threads: list[int], seconds: float) -> float:
    """Tokens per second of trainings that run at once, in sum."""
    own = [sys.executable, __file__, "--shapes", name, "--seconds", str(seconds), "--train"]
    running = [
        subprocess.Popen([*own, str(count)], stdout=subprocess.PIPE, text=True) for count in threads
    ]
    return sum(float(process.communicate()[0]) for process in running)


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shapes", nargs="+", default=["mini", "20m"], choices=SHAPES)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print a line for each shape and configuration."""
    given = arguments()
    if given.train:
        print(speed(given.shapes[0], given.train, given.seconds))
        return
    device = f"{processor()}, torch {torch.__version__}"
    print(device)
    figures = []
    for name in given.shapes:
        found: dict[str, list[float]] = {one: [] for one in CONFIGURATIONS}
        for _ in range(given.rounds):
            for one, threads in CONFIGURATIONS.items():
                found[one].append(together(name, threads, given.seconds))
        for one, rates in found.items():
            rate = statistics.median(rates)
            figures.append({"shape": name, "configuration": one, "tokens_per_second": rate})
            print(f"  {name:10} {one:18} {rate:9.0f} tokens/s", flush=True)
    if given.json:
        content = {"device": device, "figures": figures}
        write_atomic(given.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
