"""Sharded checkpoints: their size for each worker, and how long a training stands still for one.

    python benchmarks/checkpoints.py [--scale mini] [--rounds 5] [--json FILE]

The sizes are what torch.distributed.checkpoint plans to write of a model of Llama 2's 7B shape, on
the meta device: weights and AdamW's state in float32, for the first and the last of n workers of
FSDP2, and of the whole model in one file.

Two gloo workers on this machine then train a model of `--scale` with FSDP2, and save checkpoints
in three ways, which take turns: `one file` (worker 0 gathers everything and writes it), `sharded`
(each worker writes its shares while all wait), and `asynchronous` (the same while the training goes
on).
`stands still` is the time until the training can go on, `written` the time until the checkpoint
counts, and `step` the median time of the steps in between; `lost` is the time that a checkpoint
costs in all: what it takes the training longer to the same step. Medians over the rounds, with the
smallest and the largest in brackets.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.testing._internal.distributed.fake_pg import FakeStore

from fope_lab.config.atomic_files import write_atomic
from fope_lab.model import SCALES, Decoder, ModelConfig
from fope_lab.model.config import parameters
from fope_lab.stages.training import TrainSettings
from fope_lab.store.root import Store
from fope_lab.store.writer import AttemptHandle, FolderWriter, RunWriter
from trainers.checkpoints import (
    FIRST_STATES,
    ShardedCheckpoints,
    sharded_state,
    write_state,
)
from trainers.optimizer import build_optimizer
from trainers.workers import Shards

SEVEN_B = ModelConfig(
    num_layers=32, num_heads=32, head_dim=128, intermediate_size=11_008, vocab_size=32_000
)
GROUPS = (1, 2, 4, 8, 16, 64)
LENGTH, ROWS, STEPS = 256, 2, 4
SETTINGS = TrainSettings(tokens=1, batch_tokens=ROWS * LENGTH, learning_rate=1e-4)
WAYS = ("one file", "sharded", "asynchronous")


def planned_bytes(rank: int, size: int) -> int:
    """What worker `rank` of `size` writes of the model of 7 billion parameters."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        with torch.device("meta"):
            model = Decoder(SEVEN_B, "rope", train_length=4096)
        mesh = init_device_mesh("cpu", (size,))
        for module in (*model.layers, model):
            fully_shard(module, mesh=mesh)
        optimizer = build_optimizer(model, SETTINGS)
        for parameter in model.parameters():
            optimizer.state[parameter] = FIRST_STATES["step"](parameter)
        plan = create_default_local_save_plan(sharded_state(model, optimizer), rank == 0)
        return sum(
            item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize
            for item in plan.items
            if item.tensor_data is not None
        )
    finally:
        dist.destroy_process_group()


class Trainee:
    """A worker's part of a training that only takes steps and saves checkpoints."""

    def __init__(self, rank: int, folder: Path, scale: str) -> None:
        self.workers = Shards()
        self.model = Decoder(SCALES[scale], "rope", train_length=LENGTH)
        self.module = self.workers.wrap(self.model, torch.device("cpu"))
        self.optimizer = build_optimizer(self.model, SETTINGS)
        stage = Store(folder).folder("pretrain", "key")
        if rank == 0:
            stage.begin("benchmark", {})
        handle = AttemptHandle(stage.paths, 1, None)
        self.writer = (FolderWriter if rank == 0 else RunWriter)(handle)
        self.sharded = ShardedCheckpoints(self.writer, self.workers)
        self.batch = torch.randint(SCALES[scale].vocab_size, (ROWS // 2, LENGTH + 1))

    def step(self) -> float:
        """Take a step; returns its seconds."""
        started = time.monotonic()
        self.module(self.batch[:, :-1], labels=self.batch[:, 1:]).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.monotonic() - started

    def steps(self, count: int) -> list[float]:
        """Take steps; returns the seconds of each."""
        return [self.step() for _ in range(count)]

    def save_one_file(self, number: int) -> None:
        """As trainers/loop.py does it for small models."""
        weights = self.workers.weights(self.model)
        optimizer = self.workers.optimizer_state(self.model, self.optimizer)

        def write(directory: Path) -> None:
            save_file(weights, directory / "model.safetensors")
            write_state(directory, optimizer, None, torch.device("cpu"))

        self.writer.save_checkpoint(number, write)

    def save(self, way: str, number: int, alone: float) -> dict[str, float]:
        """Save a checkpoint in one of the ways, and train on; `alone` is the time of a step."""
        self.workers.agree(0)  # all begin together
        started = time.monotonic()
        if way == "one file":
            self.save_one_file(number)
        else:
            state = sharded_state(self.model, self.optimizer)
            self.sharded.begin(number, state, lambda directory: None)
        if way == "sharded":
            self.sharded.wait()
        self.workers.agree(0)
        still, seconds = time.monotonic() - started, list[float]()
        while way == "asynchronous" and self.workers.agree(int(self.sharded.is_writing)):
            seconds += self.steps(1)
        written = time.monotonic() - started
        self.sharded.wait()
        seconds += self.steps(max(1, STEPS - len(seconds)))
        return {
            "stands_still": still,
            "written": written,
            "step": statistics.median(seconds),
            "lost": time.monotonic() - started - len(seconds) * alone,
        }


def worker(rank: int, folder: Path, scale: str, rounds: int) -> None:
    """One of the two workers; worker 0 leaves what it measured in measured.json."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    trainee = Trainee(rank, folder, scale)
    trainee.step()
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for place, way in enumerate(WAYS):
            alone = statistics.median(trainee.steps(STEPS))
            measured[way].append(trainee.save(way, len(WAYS) * number + place + 1, alone))
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(measured))
    dist.destroy_process_group()


def lines(measured: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """A table of what two workers measured."""
    yield "| way | stands still, s | written, s | step, s | lost, s |"
    yield "|---|---|---|---|---|"
    for way, rounds in measured.items():
        cells = []
        for name in ("stands_still", "written", "step", "lost"):
            values = sorted(one[name] for one in rounds)
            middle = statistics.median(values)
            cells.append(f"{middle:.2f} ({values[0]:.2f}–{values[-1]:.2f})")
        yield f"| {way} | {' | '.join(cells)} |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=sorted(SCALES), default="mini")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = {n: [planned_bytes(0, n), planned_bytes(n - 1, n)] for n in GROUPS}
    print(f"7B: {parameters(SEVEN_B).total / 1e9:.2f} billion parameters")
    print("| workers | first, GB | last, GB |\n|---|---|---|")
    for workers, (first, last) in sizes.items():
        print(f"| {workers} | {first / 1e9:.2f} | {last / 1e9:.2f} |")
    with tempfile.TemporaryDirectory() as folder:
        spawned = (Path(folder), arguments.scale, arguments.rounds)
        spawn(worker, spawned, nprocs=2)
        measured: Any = json.loads((Path(folder) / "measured.json").read_text())
    print(f"\n{arguments.scale} on two workers")
    print("\n".join(lines(measured)))
    if arguments.json is not None:
        write_atomic(arguments.json, json.dumps({"sizes": sizes, "measured": measured}, indent=1))


if __name__ == "__main__":
    main()
